"""95 % intervals of fidelity metrics that are means over texts, by resampling the texts; exact ones of shares."""

from __future__ import annotations

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.metrics import Metric
from trimaran.core.tasks import Task
from trimaran.judging import bootstrap
from trimaran.judging.evidence import share_interval
from trimaran.judging.stats import CONFIDENCE, RESAMPLES

Interval = tuple[float, float]


def intervals(row: Task, reference: Answers, candidate: Answers) -> dict[str, Interval]:
    """By metric, for those that are means over texts; none where an answer is not finite."""
    metrics = {
        metric.name: metric
        for metric in row.metrics
        if metric.kind in ("mean", "share") and metric.readable(reference, candidate)
    }
    values = {name: metric.rows(reference, candidate) for name, metric in metrics.items()}
    if not all(np.isfinite(column).all() for column in values.values()):
        return {}
    return {name: _interval(metric, values[name]) for name, metric in metrics.items()}


def _interval(metric: Metric, values: Column) -> Interval:
    """Exact for a share: texts that all agree still leave a doubt, which no resampling of them shows."""
    if metric.kind == "share" and len(values):
        return share_interval(round(float(values.sum())), len(values), confidence=CONFIDENCE)[1:]
    return interval_of_mean(values) if len(values) else (0.0, 1.0)


def interval_of_mean(values: Column) -> Interval:
    """Texts are drawn with replacement. The seed is fixed, so that the same answers give the same interval."""
    return bootstrap.interval(
        lambda texts: values[texts].mean(axis=-1), len(values), confidence=CONFIDENCE, resamples=RESAMPLES
    )
