"""How far two sets of answers are apart, in the distance that the task's users feel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.runtime.text import softmax

Floats = npt.NDArray[Any]
Outputs = Mapping[str, Floats]
NEIGHBOURS = 10


def max_abs_difference(reference: Floats, candidate: Floats) -> float:
    """Largest |Δ|. A NaN or infinity on either side alone counts as infinite."""
    if not reference.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        delta = np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
    return float("inf") if np.isnan(delta).any() else float(delta.max())


def cosine_distances(reference: Floats, candidate: Floats) -> Floats:
    """1−cos of each row with its counterpart, in double precision."""
    return np.asarray(1.0 - np.sum(unit(reference) * unit(candidate), axis=-1))


def neighbour_overlap(reference: Floats, candidate: Floats, *, k: int = NEIGHBOURS) -> float:
    """Mean share of each row's k nearest rows (by cosine, itself apart) that both sides agree on."""
    k = min(k, len(reference) - 1)
    if k < 1:
        return 1.0
    mine, theirs = _nearest(reference, k), _nearest(candidate, k)
    shared = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(mine, theirs, strict=True)]
    return float(np.mean(shared) / k)


def similarity_rank_correlation(reference: Floats, candidate: Floats) -> float:
    """Spearman correlation of all pair similarities on the two sides."""
    if len(reference) < 3:
        return 1.0
    upper = np.triu_indices(len(reference), k=1)
    return spearman(similarities(reference)[upper], similarities(candidate)[upper])


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
    wanted, found = softmax(reference["logits"]), softmax(candidate["logits"])
    return {
        "label_agreement": float((wanted.argmax(-1) == found.argmax(-1)).mean()),
        "mean_probability_change": float(np.abs(wanted - found).mean()),
        "worst_probability_change": max_abs_difference(wanted, found),
        "max_abs_difference": max_abs_difference(reference["logits"], candidate["logits"]),
    }


def classification_change(reference: Outputs, candidate: Outputs) -> float:
    """Worst |Δ probability| of one text between two ways of running the same engine."""
    return max_abs_difference(softmax(reference["logits"]), softmax(candidate["logits"]))


def unit(rows: Floats) -> Floats:
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12))


def similarities(rows: Floats) -> Floats:
    normal = unit(rows)
    return np.asarray(normal @ normal.T)


def _nearest(rows: Floats, k: int) -> npt.NDArray[np.intp]:
    scores = similarities(rows)
    np.fill_diagonal(scores, -np.inf)
    return np.argpartition(-scores, k - 1, axis=-1)[:, :k]
