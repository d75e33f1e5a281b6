"""How sure a fidelity is: 95 % intervals of those metrics that are means over texts, from resampling the texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from trimaran.core.backends import Array
from trimaran.core.parity import (
    NEIGHBOURS,
    Outputs,
    classification_fidelity,
    cosine_distances,
    embedding_fidelity,
    label_probabilities,
    nearest_rows,
    same_labels,
)
from trimaran.judging.stats import CONFIDENCE

RESAMPLES = 1000
Interval = tuple[float, float]


def intervals(fidelity: Callable[..., object], reference: Outputs, candidate: Outputs) -> dict[str, Interval]:
    """By metric; none where the task's metrics are no means over texts, or an answer is not finite."""
    values_of = _VALUES.get(fidelity)
    found = values_of(reference, candidate) if values_of else {}
    return {name: interval_of_mean(values) for name, values in found.items() if np.isfinite(values).all()}


def interval_of_mean(values: Array) -> Interval:
    """Texts are drawn with replacement; seeded, so that the same answers give the same interval."""
    generator = np.random.default_rng(0)
    means = [values[generator.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _of_vectors(reference: Outputs, candidate: Outputs) -> Mapping[str, Array]:
    wanted, found = (next(iter(outputs.values())) for outputs in (reference, candidate))
    k = min(NEIGHBOURS, len(wanted) - 1)
    distances = {"mean_cosine_distance": cosine_distances(wanted, found)}
    if k < 1 or not math.isfinite(float(np.sum(found))):
        return distances
    pairs = zip(nearest_rows(wanted, k), nearest_rows(found, k), strict=True)
    shared = [len(np.intersect1d(mine, theirs, assume_unique=True)) / k for mine, theirs in pairs]
    return {**distances, "neighbour_overlap": np.asarray(shared)}


def _of_labels(reference: Outputs, candidate: Outputs) -> Mapping[str, Array]:
    name = next(iter(reference))
    wanted, found = (label_probabilities(name, outputs[name]) for outputs in (reference, candidate))
    changes = np.abs(wanted - found).reshape(len(wanted), -1).mean(axis=1)
    return {"label_agreement": same_labels(reference, candidate), "mean_probability_change": changes}


_VALUES: dict[Callable[..., object], Callable[[Outputs, Outputs], Mapping[str, Array]]] = {
    embedding_fidelity: _of_vectors,
    classification_fidelity: _of_labels,
}
