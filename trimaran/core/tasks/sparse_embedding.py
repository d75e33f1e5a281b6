"""Sparse embedding: SPLADE weights over the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, heaviest_overlaps
from trimaran.core.metrics import Metric
from trimaran.core.spec import ModelRef, Sparse
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import (
    COSINE_LOSS,
    MAX_ABS_DIFFERENCE,
    MEAN_COSINE_DISTANCE,
    RANK_OF_SIMILARITIES,
    RELATIVE_CHANGE,
    TAIL_COSINE_DISTANCE,
    distance_limits,
)
from trimaran.core.tasks.task import FLOAT_NOISE, Head, Task, WireTensors, levels, tensor


def _finish(output: Any, inputs: Mapping[str, Any], ref: ModelRef) -> Any:
    sparse = ref.sparse or Sparse()
    weights = (output.logits * inputs["attention_mask"].unsqueeze(-1)).relu().log1p()
    if sparse.activation == "log1p_relu":
        weights = weights.log1p()
    weights = weights.sum(dim=1) if sparse.strategy == "sum" else weights.amax(dim=1)
    if sparse.most is None or sparse.most >= weights.shape[-1]:
        return weights
    least = weights.topk(sparse.most).values[:, -1:]
    return weights * (weights >= least).to(weights.dtype)


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    """A row as wide as the largest token id that either side names."""
    width = max(int(side["TOKEN_IDS"].max(initial=-1)) + 1 for side in (tensors, other))
    weights = np.zeros((len(tensors["TOKEN_IDS"]), width), np.float32)
    for row, ids, values in zip(weights, tensors["TOKEN_IDS"], tensors["WEIGHTS"], strict=True):
        row[ids[ids >= 0]] = values[ids >= 0]
    return {"weights": weights}


def _ask(library: Any, text: str, *, prompt: str | None = None) -> list[dict[str, Any]]:
    weights = library.encode([text], prompt_name=prompt, show_progress_bar=False, convert_to_sparse_tensor=False)[0]
    return [{"token": int(index), "weight": float(weights[index])} for index in weights.nonzero().ravel()]


def _overlaps(reference: Answers, candidate: Answers) -> Column:
    return heaviest_overlaps(reference["weights"], candidate["weights"])


def _column() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct({"token": pa.int32(), "token_str": pa.string(), "weight": pa.float32()}))


TASK = Task(
    name="sparse-embedding",
    describe="SPLADE weights over the vocabulary",
    model_class="AutoModelForMaskedLM",
    outputs=lambda ref: (tensor("weights", ref.vocabulary),),
    head=Head(_finish),
    automatic=False,
    library=Library(
        sentence="SparseEncoder",
        ask=_ask,
        numbers=lambda answer: {f"the weight of token {entry['token']}": entry["weight"] for entry in answer},
        cause="the activation or the pooling of weights",
    ),
    metrics=(
        MEAN_COSINE_DISTANCE,
        TAIL_COSINE_DISTANCE,
        Metric(
            "heaviest_overlap",
            _overlaps,
            at_least=True,
            most=1.0,
            title="top-10 terms",
            meaning="share of each text's ten heaviest terms that stay the same",
        ),
        RANK_OF_SIMILARITIES,
        MAX_ABS_DIFFERENCE,
    ),
    change=RELATIVE_CHANGE,
    gates=levels(FLOAT_NOISE, **distance_limits(), heaviest_overlap=(">=", 0.97, 0.94)),
    headline="heaviest_overlap",
    loss=COSINE_LOSS,
    from_wire=_from_wire,
    in_graph="the head, log(1 + relu), maximum or sum over tokens",
    on_server="tokens with weight, heaviest first",
    column=_column,
)
