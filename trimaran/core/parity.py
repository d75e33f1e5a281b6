"""How far two sets of answers are apart, in the distance that the task's users feel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.tail import tail_bound
from trimaran.runtime.text import softmax

Floats = npt.NDArray[Any]
Outputs = Mapping[str, Floats]
NEIGHBOURS = 10
# Raise this when a metric changes its meaning: judgements that were remembered under another version are not reused.
METRICS_VERSION = 3


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


def cosine_distances(reference: Floats, candidate: Floats) -> Floats:
    """1−cos of each row with its counterpart, in double precision."""
    return np.asarray(1.0 - np.sum(unit(reference) * unit(candidate), axis=-1))


def neighbour_overlap(reference: Floats, candidate: Floats, *, k: int = NEIGHBOURS) -> float:
    """Mean share of each row's k nearest rows (by cosine, itself apart) that both sides agree on."""
    k = min(k, len(reference) - 1)
    if k < 1:
        return 1.0
    mine, theirs = nearest_rows(reference, k), nearest_rows(candidate, k)
    shared = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(mine, theirs, strict=True)]
    return float(np.mean(shared) / k)


def similarity_rank_correlation(reference: Floats, candidate: Floats, *, k: int = NEIGHBOURS) -> float:
    """Spearman correlation of pair similarities on the two sides, over related and unrelated pairs alike.

    Each text is paired with its k nearest by the reference and with k drawn at random (seeded). Over *all* pairs the
    metric would measure noise: nearly all of them are unrelated, and their order around zero means nothing to anyone.
    """
    if len(reference) < 3:
        return 1.0
    k = min(k, len(reference) - 1)
    strangers = np.random.default_rng(0).integers(len(reference), size=(len(reference), k))
    others = np.concatenate([nearest_rows(reference, k), strangers], axis=1)
    firsts, seconds = np.repeat(np.arange(len(reference)), 2 * k), others.ravel()
    apart = firsts != seconds
    pairs = firsts[apart], seconds[apart]
    return spearman(similarities(reference)[pairs], similarities(candidate)[pairs])


def spearman(a: Floats, b: Floats) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def embedding_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    name = next(iter(reference))
    wanted, found = reference[name], candidate[name]
    distances = cosine_distances(wanted, found)
    return {
        "mean_cosine_distance": float(distances.mean()),
        "worst_cosine_distance": float(distances.max()),
        "tail_cosine_distance": tail_bound(distances),
        "rank_correlation": similarity_rank_correlation(wanted, found),
        "neighbour_overlap": neighbour_overlap(wanted, found),
        "max_abs_difference": max_abs_difference(wanted, found),
    }


def embedding_change(reference: Outputs, candidate: Outputs) -> float:
    """Worst 1−cos of one text's vector between two ways of running the same engine."""
    name = next(iter(reference))
    worst = float(cosine_distances(reference[name], candidate[name]).max())
    return float("inf") if np.isnan(worst) else max(0.0, worst)


def classification_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    """By what the graph gives: `logits` of one label among several, `label_probabilities` of labels that are
    independent of one another, or the `values` of a regression (where the label is each pair of texts' order).
    """
    name = next(iter(reference))
    wanted, found = label_probabilities(name, reference[name]), label_probabilities(name, candidate[name])
    return {
        "label_agreement": float(same_labels(reference, candidate).mean()),
        "mean_probability_change": float(np.abs(wanted - found).mean()),
        "worst_probability_change": max_abs_difference(wanted, found),
        "tail_probability_change": tail_bound(largest_probability_changes(reference, candidate)),
        "max_abs_difference": max_abs_difference(reference[name], candidate[name]),
    }


def largest_probability_changes(reference: Outputs, candidate: Outputs) -> Floats:
    """Of each text the largest |Δ probability| of its labels; `values` of a regression relative to their own scale."""
    name = next(iter(reference))
    wanted, found = (label_probabilities(name, side[name]).astype(np.float64) for side in (reference, candidate))
    changes = np.abs(wanted - found).reshape(len(wanted), -1).max(axis=1)
    return np.asarray(changes / scale_of(wanted) if name == "values" else changes)


def classification_change(reference: Outputs, candidate: Outputs) -> float:
    """Worst |Δ probability| of one text between two ways of running the same engine."""
    name = next(iter(reference))
    return max_abs_difference(label_probabilities(name, reference[name]), label_probabilities(name, candidate[name]))


def same_labels(reference: Outputs, candidate: Outputs) -> Floats:
    """For each text 1 where both sides answer alike, else 0; for a regression, the share of others in like order."""
    name = next(iter(reference))
    return _AGREEMENTS[name](label_probabilities(name, reference[name]), label_probabilities(name, candidate[name]))


def best_label_agreement(reference: Floats, candidate: Floats) -> Floats:
    return np.asarray(reference.argmax(-1) == candidate.argmax(-1), np.float64)


def label_set_agreement(reference: Floats, candidate: Floats) -> Floats:
    """Whether a row's set of labels with probability above one half is the same."""
    return np.asarray(((reference > 0.5) == (candidate > 0.5)).all(-1), np.float64)


def order_agreement(reference: Floats, candidate: Floats) -> Floats:
    """Of each row the share of other rows that both sides put on the same side of it, over all columns."""
    if len(reference) < 2:
        return np.ones(len(reference))
    signs = [np.sign(rows[:, None].astype(np.float64) - rows[None]) for rows in (reference, candidate)]
    alike = (signs[0] == signs[1]).reshape(len(reference), len(reference), -1).mean(-1)
    return np.asarray((alike.sum(1) - 1) / (len(reference) - 1))


def score_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    wanted, found = reference["score"], candidate["score"]
    return {
        "rank_correlation": spearman(wanted.ravel(), found.ravel()) if len(wanted) > 2 else 1.0,
        "mean_score_change": float(np.abs(wanted - found).mean()),
        "max_abs_difference": max_abs_difference(wanted, found),
    }


def largest_change(reference: Outputs, candidate: Outputs) -> float:
    """Worst |Δ| of any number of any row, absent tokens apart."""
    return max(
        max_abs_difference(*_there(reference[name], candidate[name]))
        for name in reference
        if np.issubdtype(reference[name].dtype, np.floating)
    )


def token_vector_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    wanted, found = present(reference["token_embeddings"], candidate["token_embeddings"])
    distances = cosine_distances(wanted, found)
    return {
        "mean_cosine_distance": float(distances.mean()),
        "worst_cosine_distance": float(distances.max()),
        "max_abs_difference": max_abs_difference(wanted, found),
    }


def entity_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    """`entity_agreement` is the F1 of maximal runs of one label in a text, found alike by both sides."""
    wanted, found = reference["token_logits"], candidate["token_logits"]
    same, mine, theirs = 0, 0, 0
    for before, after in zip(wanted, found, strict=True):
        runs, others = runs_of_labels(before), runs_of_labels(after)
        same, mine, theirs = same + len(runs & others), mine + len(runs), theirs + len(others)
    before, after = present(wanted, found)
    return {
        "entity_agreement": 2 * same / max(1, mine + theirs),
        "token_agreement": float((before.argmax(-1) == after.argmax(-1)).mean()),
        "mean_probability_change": float(np.abs(softmax(before) - softmax(after)).mean()),
        "max_abs_difference": max_abs_difference(before, after),
    }


def span_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    """`span_agreement` is the share of texts whose best span (start, end) is the same on both sides."""
    best = [
        [best_span(start, end) for start, end in zip(side["start_logits"], side["end_logits"], strict=True)]
        for side in (reference, candidate)
    ]
    pairs = [present(reference[name], candidate[name]) for name in ("start_logits", "end_logits")]
    return {
        "span_agreement": float(np.mean([a == b for a, b in zip(*best, strict=True)])),
        "max_abs_difference": max(max_abs_difference(before, after) for before, after in pairs),
    }


def filling_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    """Agreement of the most probable token at every position of every text."""
    ids = present(reference["token_ids"], candidate["token_ids"])
    scores = present(reference["token_scores"], candidate["token_scores"])
    return {
        "token_agreement": float((ids[0][..., 0] == ids[1][..., 0]).mean()),
        "mean_probability_change": float(np.abs(scores[0] - scores[1]).mean()),
        "max_abs_difference": max_abs_difference(*scores),
    }


def sparse_fidelity(reference: Outputs, candidate: Outputs) -> dict[str, float]:
    wanted, found = reference["weights"], candidate["weights"]
    distances = cosine_distances(wanted, found)
    heaviest = min(NEIGHBOURS, wanted.shape[-1])
    tops = [np.argpartition(-rows, heaviest - 1, axis=-1)[:, :heaviest] for rows in (wanted, found)]
    shared = [len(np.intersect1d(a, b)) / heaviest for a, b in zip(*tops, strict=True)]
    return {
        "mean_cosine_distance": float(distances.mean()),
        "heaviest_overlap": float(np.mean(shared)),
        "rank_correlation": similarity_rank_correlation(wanted, found),
        "max_abs_difference": max_abs_difference(wanted, found),
    }


def present(reference: Floats, candidate: Floats) -> tuple[Floats, Floats]:
    """Both sides at the positions that both have: rows shorter than the widest are filled with NaN, or -1 for ids.

    A position that only one side has counts as NaN against a number, which no limit keeps.
    """
    width = max(reference.shape[1], candidate.shape[1])
    wanted, found = _widened(reference, width), _widened(candidate, width)
    absent = [_absent(side) for side in (wanted, found)]
    kept = ~(absent[0] & absent[1])
    return wanted[kept], found[kept]


def _there(reference: Floats, candidate: Floats) -> tuple[Floats, Floats]:
    """Both sides, number by number, where either has one: several axes may run along the tokens."""
    if reference.ndim < 2:
        return reference, candidate
    shape = np.maximum(reference.shape, candidate.shape)
    wanted, found = (
        np.pad(side, [(0, size - have) for have, size in zip(side.shape, shape, strict=True)], constant_values=np.nan)
        for side in (reference, candidate)
    )
    kept = ~(np.isnan(wanted) & np.isnan(found))
    return wanted[kept], found[kept]


def present_tokens(wanted: Floats, found: Floats) -> tuple[Floats, Floats]:
    """`present` for the tokens of one text."""
    return present(wanted[None], found[None])


def _absent(side: Floats) -> npt.NDArray[np.bool_]:
    empty = side < 0 if np.issubdtype(side.dtype, np.integer) else np.isnan(side)
    return np.asarray(empty.reshape(*side.shape[:2], -1).all(-1))


def _widened(side: Floats, width: int) -> Floats:
    missing = [(0, 0), (0, width - side.shape[1]), *([(0, 0)] * (side.ndim - 2))]
    return np.pad(side, missing, constant_values=-1 if np.issubdtype(side.dtype, np.integer) else np.nan)


def runs_of_labels(logits: Floats) -> set[tuple[int, int, int]]:
    """(label, first, last) of each maximal run of tokens with one best label."""
    tokens = logits[~np.isnan(logits).any(-1)]
    best = tokens.argmax(-1)
    edges = [0, *(np.flatnonzero(np.diff(best)) + 1), len(best)]
    return {(int(best[a]), int(a), int(b)) for a, b in pairwise(edges) if b > a}


def best_span(start: Floats, end: Floats, longest: int = 30) -> tuple[int, int]:
    size = int((~np.isnan(start)).sum())
    scores = start[:size, None].astype(np.float64) + end[None, :size]
    allowed = np.triu(np.ones((size, size), bool)) & ~np.triu(np.ones((size, size), bool), k=longest)
    place = int(np.where(allowed, scores, -np.inf).argmax())
    return place // size, place % size


_AGREEMENTS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "logits": best_label_agreement,
    "label_probabilities": label_set_agreement,
    "values": order_agreement,
}


def label_probabilities(name: str, rows: Floats) -> Floats:
    return softmax(rows) if name == "logits" else rows


def unit(rows: Floats) -> Floats:
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12))


def similarities(rows: Floats) -> Floats:
    normal = unit(rows)
    return np.asarray(normal @ normal.T)


def nearest_rows(rows: Floats, k: int = NEIGHBOURS) -> npt.NDArray[np.intp]:
    """Of each row the k nearest others by cosine, in no order."""
    k = min(k, len(rows) - 1)
    scores = similarities(rows)
    np.fill_diagonal(scores, -np.inf)
    return np.argpartition(-scores, k - 1, axis=-1)[:, :k]
