"""Whether two runs of one graph gave the same numbers, up to float noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimaran.core.backends import Arrays
from trimaran.core.distances import max_abs_difference, scale_of
from trimaran.core.errors import ParityError
from trimaran.runtime.text import SEQUENCE_AXES, unpadded


def worst_difference(
    inputs: Arrays, wanted: Arrays, found: Arrays, atol: float, what: str, *, found_inputs: Arrays | None = None
) -> float:
    """Largest |Δ| at real tokens, relative to values above 1. Numbers at padding are not part of an answer.

    Ids (of ranked tokens) have no distance: they may differ only where the scores do not tell the ranks apart.
    """
    masks = inputs["attention_mask"], (found_inputs or inputs)["attention_mask"]
    worst = 0.0
    scored = {name: array for name, array in wanted.items() if np.issubdtype(array.dtype, np.floating)}
    for name in wanted:
        rows = [
            unpadded(side[name], mask, SEQUENCE_AXES.get(name, ()))
            for side, mask in zip((wanted, found), masks, strict=True)
        ]
        scale = scale_of(wanted[name]) if name in scored else 1.0
        for index, (before, after) in enumerate(zip(*rows, strict=True)):
            if name in scored:
                delta = max_abs_difference(before, after) / scale
            else:
                scores = unpadded(next(iter(scored.values())), masks[0], (1,))[index]
                delta = _rank_difference(before, after, scores, atol)
            if not delta <= atol:
                rows_and_length = "x".join(map(str, inputs["attention_mask"].shape))
                raise ParityError(
                    f"{name} differs from {what} by {delta:.3g} at {rows_and_length}; the limit is {atol:g}.",
                    output=name,
                    observed=delta,
                    limit=atol,
                )
            worst = max(worst, delta)
    return worst


def _rank_difference(wanted: Any, ranked: Any, scores: Any, atol: float) -> float:
    """0 when two rankings agree wherever the scores tell the ranks apart; ranks closer than float noise may swap."""
    gaps = np.abs(np.diff(scores, axis=-1))
    close = np.full(scores.shape, False)
    close[..., 1:] |= gaps <= 2 * atol
    close[..., :-1] |= gaps <= 2 * atol
    close[..., -1] = True
    return 0.0 if bool(((wanted == ranked) | close).all()) else float("inf")
