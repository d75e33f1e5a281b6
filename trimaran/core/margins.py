"""How wide the margins of labels are, how far they moved, and so how many labels would change on ever more texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Outputs
from trimaran.runtime.text import softmax

Column = npt.NDArray[np.float64]
Draws = Callable[[int, int], npt.NDArray[np.intp]]
# Texts far from the border hardly move, and say nothing about those near to it.
NEAR = 1 / 3
FEWEST_NEAR = 8
_SMALLEST_PROBABILITY = 1e-7


def margins_and_moves(reference: Outputs, candidate: Outputs) -> tuple[Column, Column] | None:
    """Of each text (each label of it, where labels are independent) the width of the margin that the reference's answer
    has, and by how much the candidate has a wider one. None where answers have no margin.
    """
    name = next(iter(reference))
    if name not in _MARGINS or reference[name].shape[-1] < _FEWEST_LABELS[name]:
        return None
    wanted, found = (side[name].astype(np.float64) for side in (reference, candidate))
    margins, moved = _MARGINS[name](wanted, found)
    return margins.ravel(), (moved - margins).ravel()


def squared_moves(reference: Outputs, candidate: Outputs) -> Column:
    """Of each text how far its margin moved, squared, so that what layers add to it adds up; of answers without a
    margin how far their numbers did.
    """
    name = next(iter(reference))
    found = margins_and_moves(reference, candidate)
    moves = reference[name].astype(np.float64) - candidate[name] if found is None else found[1]
    return np.asarray(np.square(moves).reshape(len(reference[name]), -1).mean(axis=1))


def narrowest_first(reference: Outputs) -> list[int] | None:
    """Places of the texts, those nearest to another label first; None where answers have no margin."""
    found = margins_and_moves(reference, reference)
    if found is None:
        return None
    widths = found[0].reshape(len(reference[next(iter(reference))]), -1).min(axis=1)
    return [int(place) for place in np.argsort(widths, kind="stable")]


def foreseen_changes(reference: Outputs, candidate: Outputs, draws: Draws) -> Column | None:
    """The share of texts whose label would change, once for each resample of `draws(n, turn)`; None without margins.

    A label changes where its margin narrows by more than it is wide. Each margin is held against every move that was
    seen, which gives many more chances than there are texts. A move that widened a margin might as well have narrowed
    it, so that half of the moves that are large enough count at least.
    """
    found = margins_and_moves(reference, candidate)
    if found is None:
        return None
    near = _nearest(found[0])
    margins, moves = found[0][near][:, None], found[1][near][None, :]
    narrowed, either = (margins + moves < 0).astype(np.float64), (margins < np.abs(moves)).astype(np.float64) / 2
    texts = len(reference[next(iter(reference))])
    rows, columns = (_times_drawn(draws(len(near), turn)) for turn in (0, 1))
    shares = [((rows @ table) * columns).sum(axis=1) / len(near) ** 2 for table in (narrowed, either)]
    return np.asarray(np.maximum(*shares) * len(near) / texts)


def foreseen_probability_change(reference: Outputs, candidate: Outputs, rarity: float) -> float | None:
    """The |Δ probability| that a further text exceeds with the chance `rarity`; None where answers have no margin.

    A probability changes most where the text is near another label. Each text near one is held against every move that
    was seen near one, which gives many more changes than there are texts.
    """
    found = margins_and_moves(reference, candidate)
    if found is None:
        return None
    name = next(iter(reference))
    near = _nearest(found[0])
    changes = _CROSSED[name](reference[name].astype(np.float64), candidate[name].astype(np.float64), near)
    # Texts far from the border count as unchanged. A text has as many chances to change as it has independent labels.
    share = rarity * len(reference[name]) / len(near)
    return float(np.quantile(changes, max(0.0, 1 - share), method="higher"))


def _crossed_softmax(wanted: Column, found: Column, near: npt.NDArray[np.intp]) -> Column:
    """|Δ probability| of each near text (rows) under the move of each near text (columns)."""
    moves = (found - wanted)[near]
    return np.asarray([np.abs(softmax(row + moves) - softmax(row[None])).max(axis=-1) for row in wanted[near]])


def _crossed_sigmoid(wanted: Column, found: Column, near: npt.NDArray[np.intp]) -> Column:
    before, after = (_log_odds(side).ravel()[near] for side in (wanted, found))
    moves = after - before
    return np.asarray([np.abs(1 / (1 + np.exp(-odds - moves)) - 1 / (1 + np.exp(-odds))) for odds in before])


def _times_drawn(draws: npt.NDArray[np.intp]) -> Column:
    """Of each resample, how often it has each item."""
    size = draws.shape[1]
    return np.asarray([np.bincount(draw, minlength=size) for draw in draws], np.float64)


def _nearest(margins: Column) -> npt.NDArray[np.intp]:
    return np.argsort(margins, kind="stable")[: max(FEWEST_NEAR, int(len(margins) * NEAR))]


def _best_above_next(wanted: Column, found: Column) -> tuple[Column, Column]:
    """By the reference's best label and the one that comes nearest to it on either side."""
    rows, order = np.arange(len(wanted)), np.argsort(-wanted, axis=-1)
    best = order[:, 0]
    others = wanted.copy(), found.copy()
    for side in others:
        side[rows, best] = -np.inf
    return wanted[rows, best] - others[0].max(-1), found[rows, best] - others[1].max(-1)


def _either_side_of_half(wanted: Column, found: Column) -> tuple[Column, Column]:
    """By the log odds of each label."""
    odds = [_log_odds(side) for side in (wanted, found)]
    return np.abs(odds[0]), odds[1] * np.sign(odds[0])


def _log_odds(probabilities: Column) -> Column:
    clipped = np.clip(probabilities, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return np.asarray(np.log(clipped / (1 - clipped)))


_MARGINS: Mapping[str, Callable[[Column, Column], tuple[Column, Column]]] = {
    "logits": _best_above_next,
    "label_probabilities": _either_side_of_half,
}
_CROSSED: Mapping[str, Callable[[Column, Column, npt.NDArray[np.intp]], Column]] = {
    "logits": _crossed_softmax,
    "label_probabilities": _crossed_sigmoid,
}
_FEWEST_LABELS = {"logits": 2, "label_probabilities": 1}
