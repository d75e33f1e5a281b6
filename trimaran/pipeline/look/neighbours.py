"""The nearest of some texts, before and after a model was quantised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimaran.runtime.text import Array

NEAREST = 10


class Neighbour(NamedTuple):
    """A text that is among the nearest before or after."""

    text: str
    similarity_before: float
    # From 1 on; None where it is not among the nearest.
    rank_before: int | None
    # None where there is no engine.
    similarity_after: float | None = None
    rank_after: int | None = None


def neighbours(
    texts: Sequence[str], before: tuple[Array, Array], after: tuple[Array, Array] | None = None
) -> list[Neighbour]:
    """`before` and `after` are the vector of the text that is looked at, and those of `texts`."""
    sides = [_similarities(*side) for side in (before, after) if side is not None]
    ranks = [{int(index): rank for rank, index in enumerate(_order(side)[:NEAREST], 1)} for side in sides]
    shown = sorted({index for side in ranks for index in side}, key=lambda index: _order_key(index, ranks))
    return [
        Neighbour(
            texts[index],
            float(sides[0][index]),
            ranks[0].get(index),
            *((float(sides[1][index]), ranks[1].get(index)) if len(sides) > 1 else ()),
        )
        for index in shown
    ]


def _similarities(vector: Array, vectors: Array) -> Array:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.asarray(unit @ (vector / max(float(np.linalg.norm(vector)), 1e-12)))


def _order(similarities: Array) -> Array:
    return np.argsort(-similarities, kind="stable")


def _order_key(index: int, ranks: Sequence[dict[int, int]]) -> tuple[int, ...]:
    return tuple(side.get(index, NEAREST + 1) for side in ranks)
