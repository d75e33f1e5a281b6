"""95 % intervals of those fidelity metrics that are means over texts, by resampling the texts."""

from __future__ import annotations

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.tasks import Task
from trimaran.judging import bootstrap
from trimaran.judging.stats import CONFIDENCE, RESAMPLES

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
    """Texts are drawn with replacement. The seed is fixed, so that the same answers give the same interval."""
    return bootstrap.interval(
        lambda texts: values[texts].mean(axis=-1), len(values), confidence=CONFIDENCE, resamples=RESAMPLES
    )
