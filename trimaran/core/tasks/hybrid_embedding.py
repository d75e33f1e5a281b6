"""Hybrid embedding: a vector, token weights and a vector a token in one pass, as bge-m3 gives them.

The formulas are those of FlagEmbedding, bge-m3's own library. sentence-transformers gives the same dense vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, Floats, Outputs, by_token, cosine_distances, heaviest_overlaps
from trimaran.core.late_interaction import SIMILARITY
from trimaran.core.metrics import Metric
from trimaran.core.spec import ModelRef, TensorSpec
from trimaran.core.tasks import embedding
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import RELATIVE_CHANGE, distance_limits, vector_distances
from trimaran.core.tasks.task import FLOAT_NOISE, AnswerContext, Loss, Task, WireTensors, levels, own_tokens, tensor
from trimaran.runtime.tasks.hybrid_embedding import (
    COLBERT,
    DENSE,
    KINDS,
    OUTPUTS,
    SPARSE,
    UNWEIGHTED,
    wanted_kinds,
    weights_by_token,
)
from trimaran.runtime.text import Text, joined_rows

# The heads beside the encoder, as FlagEmbedding saves them.
SPARSE_FILE, COLBERT_FILE = HEAD_FILES = ("sparse_linear.pt", "colbert_linear.pt")
# The tokens that FlagEmbedding gives no weight.
_UNWEIGHTED = ("cls_token_id", "eos_token_id", "pad_token_id", "unk_token_id")


def _outputs(ref: ModelRef) -> tuple[TensorSpec, ...]:
    return (
        tensor("embedding", ref.width or ref.hidden),
        tensor("token_weights", "sequence"),
        tensor("token_embeddings", "sequence", ref.token_width or ref.hidden),
    )


def _facts(ref: ModelRef, tokenizer: Any) -> dict[str, Any]:
    ids = {getattr(tokenizer, name, None) for name in _UNWEIGHTED}
    # FlagEmbedding takes the mean of the best products.
    return {UNWEIGHTED: sorted(token for token in ids if token is not None), SIMILARITY: "meanmaxsim"}


def _judged(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    """As they are answered: weights by token, and vectors without that of the first token."""
    unweighted = context.facts.get(UNWEIGHTED, ())
    weights = []
    for encoding, row in zip(context.encoder.encodings(texts), outputs["token_weights"], strict=True):
        own = own_tokens(encoding, row)
        weights.append(_aligned(sorted(set(encoding.ids)), weights_by_token(encoding.ids, own, unweighted)))
    return {
        "embedding": outputs["embedding"],
        "token_weights": joined_rows(weights),
        "token_embeddings": outputs["token_embeddings"][:, 1:],
    }


def _aligned(tokens: Sequence[int], weights: Mapping[int, float]) -> Floats:
    """The weights of these tokens. The first number is always 0: a text without a token is an answer, too."""
    return np.asarray([0.0, *(weights.get(token, 0.0) for token in tokens)], np.float32)


def _from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    answers: dict[str, Any] = {}
    if "EMBEDDING" in tensors:
        answers["embedding"] = tensors["EMBEDDING"]
    if "WEIGHTS" in tensors:
        sides = [_wire_weights(side) for side in (tensors, other)]
        answers["token_weights"] = joined_rows(
            [_aligned(sorted({*own, *others}), own) for own, others in zip(*sides, strict=True)]
        )
    if "TOKEN_EMBEDDINGS" in tensors:
        vectors = tensors["TOKEN_EMBEDDINGS"].astype(np.float32, copy=True)
        for row, length in zip(vectors, tensors["LENGTH"][:, 0], strict=True):
            row[length:] = np.nan
        answers["token_embeddings"] = vectors
    return answers


def _wire_weights(side: WireTensors) -> list[dict[int, float]]:
    rows = zip(side["TOKEN_IDS"], side["WEIGHTS"], strict=True)
    return [
        {int(token): float(weight) for token, weight in zip(ids, weights, strict=True) if token >= 0}
        for ids, weights in rows
    ]


def _ask(library: Any, text: str, *, outputs: Sequence[str] | None = None, prompt: str | None = None) -> dict[str, Any]:
    """The dense vector of SentenceTransformer, and what FlagEmbedding's heads make of its token states."""
    import torch

    kinds, answer = wanted_kinds(outputs), {}
    (features,) = library.encode([text], prompt_name=prompt, output_value=None, show_progress_bar=False)
    size = int(features["attention_mask"].sum())
    ids, states = features["input_ids"][:size].tolist(), features["token_embeddings"][:size]
    with torch.inference_mode():
        if DENSE in kinds:
            answer[DENSE] = features["sentence_embedding"].numpy()
        if SPARSE in kinds:
            weights = _library_head(library, SPARSE_FILE)(states).relu()[:, 0].numpy()
            skipped = [getattr(library.tokenizer, name, None) for name in _UNWEIGHTED]
            named = weights_by_token(ids, weights, [token for token in skipped if token is not None])
            answer[SPARSE] = [{"token": token, "weight": weight} for token, weight in named.items()]
        if COLBERT in kinds:
            vectors = _library_head(library, COLBERT_FILE)(states[1:])
            answer[COLBERT] = {"token_embeddings": torch.nn.functional.normalize(vectors, dim=-1).numpy()}
    return answer


def _library_head(library: Any, name: str) -> Any:
    """A head from the folder of the library's model: beside the encoder, or in the folder above."""
    import torch

    body = Path(library[0].model.name_or_path)
    path = next(folder / name for folder in (body, body.parent) if (folder / name).is_file())
    state = torch.load(path, map_location="cpu", weights_only=True)
    head = torch.nn.Linear(state["weight"].shape[1], state["weight"].shape[0])
    head.load_state_dict(state)
    return head


def _numbers(answer: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {f"the weight of token {entry['token']}": entry["weight"] for entry in answer.get(SPARSE, ())}
    if DENSE in answer:
        numbers["the vector"] = answer[DENSE]
    if COLBERT in answer:
        numbers["the token vectors"] = answer[COLBERT]["token_embeddings"]
    return numbers


def _weights(answers: Answers) -> Floats:
    return np.asarray(np.nan_to_num(answers["token_weights"].astype(np.float64)))


def _side_by_side(reference: Answers, candidate: Answers) -> tuple[Floats, Floats]:
    sides = [_weights(reference), _weights(candidate)]
    width = max(side.shape[1] for side in sides)
    before, after = (np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in sides)
    return before, after


def _weight_distances(reference: Answers, candidate: Answers) -> Column:
    return cosine_distances(*_side_by_side(reference, candidate))


def _weight_overlaps(reference: Answers, candidate: Answers) -> Column:
    return heaviest_overlaps(*_side_by_side(reference, candidate))


_token_distances = by_token(cosine_distances, "token_embeddings")


def _mean_distances(reference: Answers, candidate: Answers) -> Column:
    parts = [measure(reference, candidate) for measure in (vector_distances, _weight_distances, _token_distances)]
    return np.asarray(np.mean(parts, axis=0))


def _column() -> Any:
    """What stands beside the vector, which has a column of its own."""
    import pyarrow as pa

    weights = pa.list_(pa.struct({"token": pa.int32(), "token_str": pa.string(), "weight": pa.float32()}))
    vectors = pa.struct({"tokens": pa.list_(pa.string()), "token_embeddings": pa.list_(pa.list_(pa.float32()))})
    return pa.struct({SPARSE: weights, COLBERT: vectors})


TASK = Task(
    name="hybrid-embedding",
    describe="a vector, token weights and a vector a token in one pass, as bge-m3 gives them",
    model_class="AutoModel",
    outputs=_outputs,
    head=None,
    bare=True,
    pools=True,
    automatic=False,
    facts=_facts,
    library=Library(
        sentence="SentenceTransformer",
        ask=_ask,
        numbers=_numbers,
        options=tuple({OUTPUTS: [kind]} for kind in KINDS),
        further_options=({},),
        cause="pooling, or one of the heads",
    ),
    metrics=(
        *embedding.TASK.metrics[:-1],
        Metric(
            "mean_weight_distance",
            _weight_distances,
            title="mean 1−cos, weights",
            meaning="mean cosine distance of a text's token weights to eager's",
        ),
        Metric(
            "tail_weight_distance",
            _weight_distances,
            kind="tail",
            title="1 % tail of 1−cos, weights",
            meaning="cosine distance of the token weights that at most 1 % of texts exceed, with 95 % confidence",
        ),
        Metric(
            "heaviest_overlap",
            _weight_overlaps,
            at_least=True,
            most=1.0,
            title="top-10 terms",
            meaning="share of each text's ten heaviest terms that stay the same",
        ),
        Metric(
            "mean_token_distance",
            _token_distances,
            title="mean 1−cos, tokens",
            meaning="mean cosine distance of a text's token vectors to eager's",
        ),
        Metric(
            "tail_token_distance",
            _token_distances,
            kind="tail",
            title="1 % tail of 1−cos, tokens",
            meaning="cosine distance of the token vectors that at most 1 % of texts exceed, with 95 % confidence",
        ),
        embedding.TASK.metrics[-1],
    ),
    change=RELATIVE_CHANGE,
    gates=levels(FLOAT_NOISE, **embedding.LIMITS, **distance_limits("weight"), **distance_limits("token")),
    headline="neighbour_overlap",
    loss=Loss("mean 1−cos of vector, weights and token vectors", _mean_distances),
    judged=_judged,
    from_wire=_from_wire,
    # Vectors of every token are large: a few texts say as much.
    most_requests=16,
    in_graph="pooling, unit length, both heads",
    on_server="the largest weight of each token, special tokens and padding removed",
    column=_column,
    bulk_part_rows=256,
)
