"""95 % intervals of those fidelity metrics that are means over texts, by resampling the texts."""

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
from trimaran.judging import bootstrap
from trimaran.judging.stats import CONFIDENCE, RESAMPLES

Interval = tuple[float, float]


def intervals(fidelity: Callable[..., object], reference: Outputs, candidate: Outputs) -> dict[str, Interval]:
    """By metric. Empty where the task's metrics are not means over texts, or where an answer is not finite."""
    by_text = _VALUES_BY_TEXT.get(fidelity)
    metrics = by_text(reference, candidate) if by_text else {}
    return {name: interval_of_mean(values) for name, values in metrics.items() if np.isfinite(values).all()}


def interval_of_mean(values: Array) -> Interval:
    """Texts are drawn with replacement. The seed is fixed, so that the same answers give the same interval."""
    return bootstrap.interval(
        lambda texts: values[texts].mean(axis=-1), len(values), confidence=CONFIDENCE, resamples=RESAMPLES
    )


def _of_vectors(reference: Outputs, candidate: Outputs) -> Mapping[str, Array]:
    eager, other = (next(iter(outputs.values())) for outputs in (reference, candidate))
    k = min(NEIGHBOURS, len(eager) - 1)
    distances = {"mean_cosine_distance": cosine_distances(eager, other)}
    if k < 1 or not math.isfinite(float(np.sum(other))):
        return distances
    neighbours = zip(nearest_rows(eager, k), nearest_rows(other, k), strict=True)
    shared = [len(np.intersect1d(a, b, assume_unique=True)) / k for a, b in neighbours]
    return {**distances, "neighbour_overlap": np.asarray(shared)}


def _of_labels(reference: Outputs, candidate: Outputs) -> Mapping[str, Array]:
    name = next(iter(reference))
    eager, other = (label_probabilities(name, outputs[name]) for outputs in (reference, candidate))
    changes = np.abs(eager - other).reshape(len(eager), -1).mean(axis=1)
    return {"label_agreement": same_labels(reference, candidate), "mean_probability_change": changes}


_VALUES_BY_TEXT: dict[Callable[..., object], Callable[[Outputs, Outputs], Mapping[str, Array]]] = {
    embedding_fidelity: _of_vectors,
    classification_fidelity: _of_labels,
}
