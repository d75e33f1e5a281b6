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
    found = {}
    for metric in row.metrics:
        if metric.kind in ("mean", "share") and metric.readable(reference, candidate):
            values = metric.by_text(reference, candidate)
            if np.isfinite(values).all():
                found[metric.name] = interval_of_mean(values)
    return found


def interval_of_mean(values: Column) -> Interval:
    """Texts are drawn with replacement; seeded, so that the same answers give the same interval."""
    generator = np.random.default_rng(0)
    means = [values[generator.integers(len(values), size=len(values))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
