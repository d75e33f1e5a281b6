"""How sure a fidelity is: 95 % intervals of those metrics that are means over texts, from resampling the texts."""

from __future__ import annotations

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.tasks import Task
from trimaran.judging.stats import CONFIDENCE

RESAMPLES = 1000
Interval = tuple[float, float]


def intervals(row: Task, reference: Answers, candidate: Answers) -> dict[str, Interval]:
    """By metric, for those that are means over texts; none where an answer is not finite."""
    values = {
        metric.name: metric.by_text(reference, candidate)
        for metric in row.metrics
        if metric.kind in ("mean", "share") and metric.readable(reference, candidate)
    }
    if not all(np.isfinite(column).all() for column in values.values()):
        return {}
    return {name: interval_of_mean(column) for name, column in values.items()}


def interval_of_mean(values: Column) -> Interval:
    """Texts are drawn with replacement; seeded, so that the same answers give the same interval."""
    generator = np.random.default_rng(0)
    means = [values[generator.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
