"""How far two sets of answers are apart, text by text.

Every function takes the reference's numbers and the candidate's, and gives one row for each text. What is made of the
rows (a mean, a share, the worst) is a metric's business: see `core/metrics.py`.

Outputs along tokens are filled up to the longest text: floats with NaN, integers with -1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.runtime.text import softmax

Floats = npt.NDArray[Any]
Column = npt.NDArray[np.float64]
# What a graph gives, by the name of the output.
Outputs = Mapping[str, Floats]
# Answers of several texts by name: a graph's outputs, and what was made of them (entities, spans).
Answers = Mapping[str, Any]
NEIGHBOURS = 10
# Smaller numbers count as this large, where a difference is taken relative to them.
_SMALLEST_SCALE = 1e-2
# Numbers of one side that are compared at a time.
_NUMBERS_AT_A_TIME = 1 << 24
# A similarity that differs by less does not change what a caller finds.
EPSILON = 0.01


def first_of(answers: Answers) -> Any:
    """The numbers of the first output."""
    return next(iter(answers.values()))


def max_abs_difference(reference: Floats, candidate: Floats) -> float:
    """Largest |Δ|. A NaN or infinity on either side alone counts as infinite."""
    if not reference.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        delta = np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
    return float("inf") if np.isnan(delta).any() else float(delta.max())


def scale_of(values: Floats) -> float:
    """What a difference is taken relative to: the largest |value|, or 1 where all are smaller.

    Float noise grows with the numbers: logits around ten differ by ten times what unit vectors do, and mean as little.
    """
    return max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0.0)))


def largest_number(values: Floats) -> float:
    """The largest |value| of scores, whose size a model chooses freely."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=_SMALLEST_SCALE))


# Vectors


def unit(rows: Floats) -> Floats:
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12))


def similarities(rows: Floats) -> Floats:
    normal = unit(rows)
    return np.asarray(normal @ normal.T)


def cosine_distances(reference: Floats, candidate: Floats) -> Column:
    """1−cos of each row with its counterpart, in double precision; 0 where both are zero.

    A static embedding gives zeros for a text without tokens.
    """
    alike = ~np.any(reference, axis=-1) & ~np.any(candidate, axis=-1)
    return np.asarray(np.where(alike, 0.0, 1.0 - np.sum(unit(reference) * unit(candidate), axis=-1)))


def nearest_rows(rows: Floats, k: int = NEIGHBOURS) -> npt.NDArray[np.intp]:
    """The k nearest other rows of each row by cosine, in no order."""
    k = min(k, len(rows) - 1)
    scores = similarities(rows)
    np.fill_diagonal(scores, -np.inf)
    return np.argpartition(-scores, k - 1, axis=-1)[:, :k]


def neighbour_overlaps(reference: Floats, candidate: Floats, k: int = NEIGHBOURS) -> Column:
    """The share of each row's k nearest rows (by cosine, itself apart) that both sides agree on."""
    k = min(k, len(reference) - 1)
    if k < 1:
        return np.ones(len(reference))
    pairs = zip(nearest_rows(reference, k), nearest_rows(candidate, k), strict=True)
    return np.asarray([len(np.intersect1d(mine, theirs, assume_unique=True)) / k for mine, theirs in pairs])


def related_similarities(reference: Floats, candidate: Floats, k: int = NEIGHBOURS) -> Column:
    """Similarities of each text to others on both sides: texts x others x (reference, candidate, which other).

    The others are its k nearest by the reference and k drawn at random (seeded). Over *all* pairs a correlation would
    measure noise: nearly all of them are unrelated, and their order around zero means nothing to anyone. A text drawn
    as its own partner is NaN.
    """
    k = min(k, len(reference) - 1)
    texts = np.arange(len(reference))[:, None]
    if k < 1:
        return np.stack([*np.full((2, len(reference), 1), np.nan), texts.astype(np.float64)], axis=-1)
    drawn = np.random.default_rng(0).integers(len(reference), size=(len(reference), k))
    others = np.concatenate([nearest_rows(reference, k), drawn], axis=1)
    sides = [np.where(others == texts, np.nan, similarities(rows)[texts, others]) for rows in (reference, candidate)]
    return np.stack([*sides, others.astype(np.float64)], axis=-1)


def epsilon_recalls(reference: Floats, candidate: Floats, k: int = NEIGHBOURS) -> Column:
    """The share of each row's k nearest rows by the candidate that are right by the reference.

    A neighbour is right if its similarity by the reference is within `EPSILON` of that of the k-th. So two texts that
    are equally near may change places, in a dense neighbourhood as well. The index is made by the candidate, and once
    more by the reference, as where vectors were stored before the candidate was deployed: the worse of the two counts.
    """
    k = min(k, len(reference) - 1)
    if k < 1:
        return np.ones(len(reference))
    true = similarities(reference)
    np.fill_diagonal(true, -np.inf)
    enough = np.sort(true, axis=-1)[:, -k] - EPSILON
    queries = unit(candidate)
    recalls = []
    for index in (queries, unit(reference)):
        scores = queries @ index.T
        np.fill_diagonal(scores, -np.inf)
        nearest = np.argpartition(-scores, k - 1, axis=-1)[:, :k]
        recalls.append((np.take_along_axis(true, nearest, axis=-1) >= enough[:, None]).mean(axis=-1))
    return np.asarray(np.minimum(*recalls))


def similarity_changes(reference: Floats, candidate: Floats, k: int = NEIGHBOURS) -> Column:
    """The largest |Δ similarity| of each row to its k nearest rows by the reference."""
    k = min(k, len(reference) - 1)
    if k < 1:
        return np.zeros(len(reference))
    nearest = nearest_rows(reference, k)
    delta = similarities(reference) - similarities(candidate)
    return np.asarray(np.abs(np.take_along_axis(delta, nearest, axis=-1)).max(axis=-1))


def heaviest_overlaps(reference: Floats, candidate: Floats) -> Column:
    """The share of each row's ten largest numbers that both sides agree on."""
    size = min(NEIGHBOURS, reference.shape[-1])
    tops = [np.argpartition(-rows, size - 1, axis=-1)[:, :size] for rows in (reference, candidate)]
    return np.asarray([len(np.intersect1d(mine, theirs)) / size for mine, theirs in zip(*tops, strict=True)])


# Labels. The name of a classifier's output says what its numbers are: `logits` of one label among several,
# `label_probabilities` of labels that are independent of one another, or the `values` of a regression.


def label_probabilities(answers: Answers) -> Floats:
    name = next(iter(answers))
    return softmax(answers[name]) if name == "logits" else answers[name]


def same_labels(reference: Answers, candidate: Answers) -> Column:
    """For each text 1 where both sides answer alike, else 0; for a regression, the share of others in like order."""
    agreement = _AGREEMENTS[next(iter(reference))]
    return agreement(label_probabilities(reference), label_probabilities(candidate))


def probability_changes(reference: Answers, candidate: Answers) -> Column:
    """|Δ probability| of each text's labels: texts x labels. Those of small `values` are relative to the largest."""
    before, after = label_probabilities(reference), label_probabilities(candidate)
    scale = min(1.0, largest_number(before)) if "values" in reference else 1.0
    return np.asarray(np.abs(before.astype(np.float64) - after).reshape(len(before), -1) / scale)


def largest_probability_changes(reference: Answers, candidate: Answers) -> Column:
    """The largest |Δ probability| of each text; `values` of a regression relative to their own scale."""
    changes = probability_changes(reference, candidate).max(axis=1)
    # Those of values below 1 are relative already.
    return np.asarray(changes / scale_of(first_of(reference)) if "values" in reference else changes)


def _same_best_label(reference: Floats, candidate: Floats) -> Column:
    return np.asarray(reference.argmax(-1) == candidate.argmax(-1), np.float64)


def _same_label_set(reference: Floats, candidate: Floats) -> Column:
    """Whether a row's set of labels with probability above one half is the same."""
    return np.asarray(((reference > 0.5) == (candidate > 0.5)).all(-1), np.float64)


def _same_order(reference: Floats, candidate: Floats) -> Column:
    """The share of other rows that both sides put on the same side of a row, over all columns."""
    if len(reference) < 2:
        return np.ones(len(reference))
    signs = [np.sign(rows[:, None].astype(np.float64) - rows[None]) for rows in (reference, candidate)]
    alike = (signs[0] == signs[1]).reshape(len(reference), len(reference), -1).mean(-1)
    return np.asarray((alike.sum(1) - 1) / (len(reference) - 1))


_AGREEMENTS: dict[str, Callable[[Floats, Floats], Column]] = {
    "logits": _same_best_label,
    "label_probabilities": _same_label_set,
    "values": _same_order,
}


# Tokens


def by_token(distance: Callable[[Floats, Floats], Floats], *names: str) -> Callable[[Answers, Answers], Column]:
    """The mean of a distance over each text's tokens, and over the named outputs."""

    def by_text(reference: Answers, candidate: Answers) -> Column:
        total = np.zeros(len(reference[names[0]]))
        for name in names:
            for index, (before, after) in enumerate(zip(reference[name], candidate[name], strict=True)):
                total[index] += float(np.mean(distance(*present_tokens(before, after)))) / len(names)
        return total

    return by_text


def present_tokens(reference: Floats, candidate: Floats) -> tuple[Floats, Floats]:
    """Both sides of one text at the tokens that either has.

    A token that only one side has is NaN on the other, which no limit keeps.
    """
    width = max(len(reference), len(candidate))
    before, after = _widened(reference, width), _widened(candidate, width)
    kept = ~(_absent(before) & _absent(after))
    return before[kept], after[kept]


def _absent(side: Floats) -> npt.NDArray[np.bool_]:
    empty = side < 0 if np.issubdtype(side.dtype, np.integer) else np.isnan(side)
    return np.asarray(empty.reshape(len(side), -1).all(-1))


def _widened(side: Floats, width: int) -> Floats:
    missing = [(0, width - len(side)), *([(0, 0)] * (side.ndim - 1))]
    return np.pad(side, missing, constant_values=-1 if np.issubdtype(side.dtype, np.integer) else np.nan)


def same_best(reference: Floats, candidate: Floats) -> Floats:
    """Whether the best label of a token is the same."""
    return np.asarray(reference.argmax(-1) == candidate.argmax(-1), np.float64)


def softmax_changes(reference: Floats, candidate: Floats) -> Floats:
    return np.asarray(np.abs(softmax(reference) - softmax(candidate)))


# Any numbers


def largest_differences(reference: Answers, candidate: Answers) -> Column:
    """The largest |Δ| of each text over all outputs that are numbers, absent tokens apart."""
    return _worst_output(reference, candidate, _row_differences)


def relative_differences(reference: Answers, candidate: Answers) -> Column:
    """The largest |Δ| of each text relative to the largest number that the text has itself, over all outputs."""
    return _worst_output(reference, candidate, _relative_row_differences)


def _worst_output(reference: Answers, candidate: Answers, difference: Callable[[Floats, Floats], Column]) -> Column:
    """The largest difference of each text over all outputs that are numbers.

    Vectors of every token are gigabytes, and a difference needs several copies: a few texts are compared at a time.
    """
    worst = np.zeros(len(first_of(reference)))
    for name, before in reference.items():
        if isinstance(before, np.ndarray) and np.issubdtype(before.dtype, np.floating):
            after = candidate[name]
            step = max(1, _NUMBERS_AT_A_TIME // max(1, *(side[0].size for side in (before, after) if len(side))))
            for begin in range(0, len(before), step):
                rows = slice(begin, begin + step)
                worst[rows] = np.maximum(worst[rows], difference(before[rows], after[rows]))
    return worst


def _relative_row_differences(before: Floats, after: Floats) -> Column:
    numbers = np.abs(before.reshape(len(before), -1))
    sizes = np.nanmax(numbers, axis=1, initial=_SMALLEST_SCALE)
    # A text without any number was not answered.
    return np.where(np.isnan(numbers).all(axis=1), np.inf, _row_differences(before, after) / sizes)


def _row_differences(before: Floats, after: Floats) -> Column:
    """Several axes may run along the tokens, so both sides are filled up to one shape first."""
    shape = np.maximum(before.shape, after.shape)
    sides = []
    for side in (before, after):
        missing = [(0, size - have) for have, size in zip(side.shape, shape, strict=True)]
        sides.append(np.pad(side.astype(np.float64), missing, constant_values=np.nan).reshape(len(before), -1))
    absent = np.isnan(sides[0]) & np.isnan(sides[1])
    with np.errstate(invalid="ignore"):
        delta = np.where(absent, 0.0, np.abs(sides[0] - sides[1]))
    return np.asarray(np.where(np.isnan(delta), np.inf, delta).max(axis=1, initial=0.0))
