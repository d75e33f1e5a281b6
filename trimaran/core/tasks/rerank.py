"""Rerank: scores of documents for a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.metrics import Metric, spearman, spearman_of_pairs
from trimaran.core.tasks.shared import LARGEST_CHANGE, LOGITS, MAX_ABS_DIFFERENCE
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    DataMetric,
    Loss,
    RequestRow,
    Task,
    WireTensors,
    first_text,
    levels,
    second_text,
    tensor,
)
from trimaran.core.tasks.text_classification import value_and_gold
from trimaran.runtime.text import Text

_DOCUMENTS = 4


def _changes(reference: Answers, candidate: Answers) -> Column:
    delta = np.abs(reference["score"].astype(np.float64) - candidate["score"])
    return np.asarray(delta.reshape(len(delta), -1).mean(axis=1))


def _scores(reference: Answers, candidate: Answers) -> Column:
    return np.stack([reference["score"], candidate["score"]], axis=-1).astype(np.float64)


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    """Scores in the order in which the documents were given."""
    order = np.argsort(tensors["INDICES"], axis=-1, kind="stable")
    return {"score": np.take_along_axis(tensors["SCORES"], order, axis=-1).reshape(-1, 1)}


def _requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    """Each query with its own document and those of its neighbours."""
    documents = [second_text(text) for text in texts]
    return [
        {
            "QUERY": first_text(text),
            "DOCUMENTS": [documents[(index + step) % len(texts)] for step in range(_DOCUMENTS)],
        }
        for index, text in enumerate(texts)
    ]


def _column() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct({"index": pa.int32(), "score": pa.float32()}))


TASK = Task(
    name="rerank",
    describe="scores of documents for a query, best first",
    model_class="AutoModelForSequenceClassification",
    outputs=lambda ref: (tensor("score", 1),),
    head=LOGITS,
    texts="pair",
    asks=True,
    labelled=True,
    automatic=False,
    facts=lambda ref, tokenizer: {"activation": ref.activation},
    metrics=(
        Metric("rank_correlation", _scores, kind="pooled", pooled=spearman_of_pairs),
        Metric("mean_score_change", _changes, title="mean |Δscore|", meaning="mean change of a score"),
        MAX_ABS_DIFFERENCE,
    ),
    change=LARGEST_CHANGE,
    gates=levels(FLOAT_NOISE, rank_correlation=(">=", 0.9995, 0.999), mean_score_change=("<=", 0.005, 0.01)),
    headline="rank_correlation",
    loss=Loss("|Δ score|", _changes),
    from_wire=_from_wire,
    data_metrics={"spearman": DataMetric(value_and_gold, lambda rows: spearman(rows[:, 0], rows[:, 1]), paired=True)},
    requests=_requests,
    most_requests=32,
    in_graph="the head and its activation",
    on_server="documents in order",
    column=_column,
    bulk_item=lambda pair: (pair[0], [pair[1]]),
)
