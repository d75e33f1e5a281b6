"""What calls return for texts: made from the tensors of their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimaran.runtime.tasks.hybrid_embedding import COLBERT, DENSE, SPARSE
from trimaran.serving.client.columns import decoded
from trimaran.serving.client.question import Model, NamedTensors

# The tensors of each output that a hybrid model can be asked for.
HYBRID_TENSORS = {
    DENSE: ("EMBEDDING",),
    SPARSE: ("TOKEN_IDS", "TOKENS", "WEIGHTS"),
    COLBERT: ("TOKEN_EMBEDDINGS", "VECTOR_TOKENS", "LENGTH"),
}
Embeddings = npt.NDArray[np.float32]
Ranking = list[tuple[str, float]]


class TokenVectors(NamedTuple):
    """The tokens of one text, special ones included, and a vector for each."""

    tokens: list[str]
    vectors: Embeddings


class TokenWeights(NamedTuple):
    """The tokens of a vocabulary that a text weighs, heaviest first."""

    ids: npt.NDArray[np.int64]
    tokens: list[str]
    weights: Embeddings


class HybridVectors(NamedTuple):
    """The outputs of a hybrid model for one text; None for what was not asked for."""

    dense: Embeddings | None
    sparse: TokenWeights | None
    colbert: TokenVectors | None


def embeddings(model: Model, parts: Sequence[NamedTensors]) -> Embeddings:
    none = np.empty((0, *model.outputs["EMBEDDING"]), np.float32)
    return np.concatenate([none, *(part["EMBEDDING"] for part in parts)])


def without_padding(part: NamedTensors) -> NamedTensors:
    """The vectors of each text as an array of its own.

    A part is padded to its longest text. Many parts with one long text each would fill the memory.
    """
    rows = np.empty(len(part["LENGTH"]), np.object_)
    for index, (vectors, length) in enumerate(zip(part["TOKEN_EMBEDDINGS"], part["LENGTH"].ravel(), strict=True)):
        rows[index] = vectors[: int(length)].copy()
    return {**part, "TOKEN_EMBEDDINGS": rows}


def token_vectors(parts: Sequence[NamedTensors]) -> Iterator[TokenVectors]:
    for part in parts:
        # A hybrid model's TOKENS are those with a weight.
        names = part["VECTOR_TOKENS" if "VECTOR_TOKENS" in part else "TOKENS"]
        for row, vectors, length in zip(names, part["TOKEN_EMBEDDINGS"], part["LENGTH"].ravel(), strict=True):
            yield TokenVectors(decoded(row[: int(length)]), vectors[: int(length)])


def token_weights(parts: Sequence[NamedTensors]) -> Iterator[TokenWeights]:
    for part in parts:
        for ids, names, weights in zip(part["TOKEN_IDS"], part["TOKENS"], part["WEIGHTS"], strict=True):
            kept = ids >= 0
            yield TokenWeights(ids[kept], decoded(names[kept]), weights[kept])


def rankings(parts: Sequence[NamedTensors]) -> list[Ranking]:
    return [
        list(zip(decoded(labels), map(float, scores), strict=True))
        for part in parts
        for labels, scores in zip(part["LABELS"], part["SCORES"], strict=True)
    ]
