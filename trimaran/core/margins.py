"""How wide the margins of labels are, how far they moved, and so how many labels would change on ever more texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Column, Outputs
from trimaran.runtime.text import softmax

DrawRows = Callable[[int, int], npt.NDArray[np.intp]]
# Texts far from the border hardly move, and say nothing about those near to it.
NEAR = 1 / 3
FEWEST_NEAR = 8
_SMALLEST_PROBABILITY = 1e-7
_SMALLEST_MOVE = 1e-12
# The distribution of sizes is cut into so many parts, of which the rarest has this chance.
_SIZES, _RAREST_MOVE = 32, 1e-6
# Degrees of freedom of Student's t: the last is the normal distribution.
_FREEDOMS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 1e6)


def margins_and_moves(reference: Outputs, candidate: Outputs) -> tuple[Column, Column] | None:
    """Return the margin of each of the reference's answers, and how much wider the candidate's margin is.

    There is one row for each text; where labels are independent, one for each label of each text. None if answers of
    this kind have no margin.
    """
    name = next(iter(reference))
    if name not in _MARGINS or reference[name].shape[-1] < _FEWEST_LABELS[name]:
        return None
    wanted, answered = (side[name].astype(np.float64) for side in (reference, candidate))
    margins, moved = _MARGINS[name](wanted, answered)
    return margins.ravel(), (moved - margins).ravel()


def squared_moves(reference: Outputs, candidate: Outputs) -> Column:
    """Return how far each text's margin moved, squared: squares of several layers can be added.

    Answers without a margin count by how far their numbers moved.
    """
    name = next(iter(reference))
    both = margins_and_moves(reference, candidate)
    moves = reference[name].astype(np.float64) - candidate[name] if both is None else both[1]
    return np.asarray(np.square(moves).reshape(len(reference[name]), -1).mean(axis=1))


def narrowest_first(reference: Outputs) -> list[int] | None:
    """Places of the texts, those nearest to another label first; None where answers have no margin."""
    both = margins_and_moves(reference, reference)
    if both is None:
        return None
    widths = both[0].reshape(len(reference[next(iter(reference))]), -1).min(axis=1)
    return [int(index) for index in np.argsort(widths, kind="stable")]


def foreseen_changes(reference: Outputs, candidate: Outputs, draws: DrawRows) -> Column | None:
    """The share of texts whose label would change, once for each resample of `draws(n, turn)`; None without margins.

    A label changes where its margin narrows by more than it is wide. Each margin is held against every move that was
    seen, which gives many more chances than there are texts. A move that widened a margin might as well have narrowed
    it, so that half of the moves that are large enough count at least.
    """
    both = margins_and_moves(reference, candidate)
    if both is None:
        return None
    near = _nearest(both[0])
    margins, moves = both[0][near][:, None], both[1][near][None, :]
    narrowed, either = (margins + moves < 0).astype(np.float64), (margins < np.abs(moves)).astype(np.float64) / 2
    texts = len(reference[next(iter(reference))])
    rows, columns = (_times_drawn(draws(len(near), turn)) for turn in (0, 1))
    shares = [((rows @ table) * columns).sum(axis=1) / len(near) ** 2 for table in (narrowed, either)]
    return np.asarray(np.maximum(*shares) * len(near) / texts)


def foreseen_probability_change(reference: Outputs, candidate: Outputs, rarity: float) -> float | None:
    """The |Δ probability| that a further text exceeds with the chance `rarity`; None where answers have no margin.

    A probability changes most where the text is near another label. Each text near one is held against moves in every
    direction that was seen near one. A further text may move further than all that were seen, so the sizes of moves are
    taken from a distribution with the tail of those seen.
    """
    both = margins_and_moves(reference, candidate)
    if both is None:
        return None
    name = next(iter(reference))
    near = _nearest(both[0])
    changes, weights = _CROSSED[name](reference[name].astype(np.float64), candidate[name].astype(np.float64), near)
    # Texts far from the border count as unchanged. A text has as many chances to change as it has independent labels.
    share = rarity * len(reference[name]) / len(near)
    order = np.argsort(-changes, axis=None)
    exceeding = np.cumsum(weights.ravel()[order])
    position = int(np.searchsorted(exceeding, share * exceeding[-1]))
    return float(changes.ravel()[order[min(position, len(order) - 1)]])


def _crossed_softmax(wanted: Column, answered: Column, near: npt.NDArray[np.intp]) -> tuple[Column, Column]:
    """|Δ probability| of each near text (rows) under each move, and the weight of each."""
    moves = (answered - wanted)[near]
    # A number that is added to all logits changes nothing.
    moves = moves - moves.mean(axis=-1, keepdims=True)
    lengths = np.linalg.norm(moves, axis=-1)
    directions = moves / np.maximum(lengths, _SMALLEST_MOVE)[:, None]
    sizes, chances = _sizes_of_moves(lengths)
    tried = (sizes[:, None, None] * directions).reshape(-1, moves.shape[-1])
    changes = [np.abs(softmax(row + tried) - softmax(row[None])).max(axis=-1) for row in wanted[near]]
    return np.asarray(changes), np.tile(np.repeat(chances, len(directions)), (len(near), 1))


def _crossed_sigmoid(wanted: Column, answered: Column, near: npt.NDArray[np.intp]) -> tuple[Column, Column]:
    before, after = (_log_odds(side).ravel()[near] for side in (wanted, answered))
    sizes, chances = _sizes_of_moves(np.abs(after - before))
    tried = np.concatenate([sizes, -sizes])
    changes = [np.abs(1 / (1 + np.exp(-odds - tried)) - 1 / (1 + np.exp(-odds))) for odds in before]
    return np.asarray(changes), np.tile(np.concatenate([chances, chances]), (len(near), 1))


def _sizes_of_moves(seen: Column) -> tuple[Column, Column]:
    """Sizes that moves of further texts have, largest first, and the chance of each.

    Texts differ in how noisy they are, so moves follow Student's t, which has the normal distribution as its limit. Its
    scale is taken from the median of the sizes seen, and its tail from how far those above the median spread.
    """
    from scipy.stats import t

    logarithms = np.log(np.maximum(seen, _SMALLEST_MOVE))
    middle = float(np.median(logarithms))
    above = logarithms[logarithms > middle] - middle
    spread = float(np.sqrt(np.square(above).mean())) if len(above) else 0.0
    freedom = min(_FREEDOMS, key=lambda degrees: abs(_spread_above_median(degrees) - spread))
    edges = np.concatenate([[0.0], np.geomspace(_RAREST_MOVE, 1.0, _SIZES)])
    chances = np.diff(edges)
    sizes = t.isf((edges[:-1] + chances / 2) / 2, freedom) / t.isf(0.25, freedom)
    return np.exp(middle) * sizes, chances


@cache
def _spread_above_median(freedom: float) -> float:
    """Root of the mean squared logarithm of |x| / median, for x of Student's t where |x| is above its median."""
    from scipy.stats import t

    chances = (np.arange(2000) + 0.5) / 4000
    return float(np.sqrt(np.square(np.log(t.isf(chances / 2, freedom) / t.isf(0.25, freedom))).mean()))


def _times_drawn(draws: npt.NDArray[np.intp]) -> Column:
    """Of each resample, how often it has each item."""
    size = draws.shape[1]
    return np.asarray([np.bincount(draw, minlength=size) for draw in draws], np.float64)


def _nearest(margins: Column) -> npt.NDArray[np.intp]:
    return np.argsort(margins, kind="stable")[: max(FEWEST_NEAR, int(len(margins) * NEAR))]


def _best_above_next(wanted: Column, answered: Column) -> tuple[Column, Column]:
    """By the reference's best label and the one that comes nearest to it on either side."""
    rows, order = np.arange(len(wanted)), np.argsort(-wanted, axis=-1)
    best = order[:, 0]
    others = wanted.copy(), answered.copy()
    for side in others:
        side[rows, best] = -np.inf
    return wanted[rows, best] - others[0].max(-1), answered[rows, best] - others[1].max(-1)


def _either_side_of_half(wanted: Column, answered: Column) -> tuple[Column, Column]:
    """By the log odds of each label."""
    odds = [_log_odds(side) for side in (wanted, answered)]
    return np.abs(odds[0]), odds[1] * np.sign(odds[0])


def _log_odds(probabilities: Column) -> Column:
    clipped = np.clip(probabilities, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return np.asarray(np.log(clipped / (1 - clipped)))


_MARGINS: Mapping[str, Callable[[Column, Column], tuple[Column, Column]]] = {
    "logits": _best_above_next,
    "label_probabilities": _either_side_of_half,
}
_CROSSED: Mapping[str, Callable[[Column, Column, npt.NDArray[np.intp]], tuple[Column, Column]]] = {
    "logits": _crossed_softmax,
    "label_probabilities": _crossed_sigmoid,
}
_FEWEST_LABELS = {"logits": 2, "label_probabilities": 1}
