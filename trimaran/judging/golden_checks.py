"""Holds answers to the requests of a golden bundle against the proof's own limits: all, each prompt, each kind.

A bundle has few requests, so they prove no gate. They can refute one. A mean is refuted where it lies above its limit
by more than two and a half standard errors. A share or a tail is refuted by a count of answers
beyond the limit that has a chance of at most 5 % if the limit is kept. The limits are those that were proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trimaran.core.distances import Column
from trimaran.core.metrics import Metric
from trimaran.core.tasks import Gate, task
from trimaran.core.tasks.task import WireTensors
from trimaran.judging.bounds import ALPHA
from trimaran.judging.gate_check import KIND_SLACK, GateCheck, kind_breaks, point_check
from trimaran.judging.golden import Golden
from trimaran.judging.wire_fidelity import sides

# The mean of sixty texts has a standard error of about a tenth; that of fewer has a larger one.
_TEXTS_OF_SLACK = 60
_STANDARD_ERRORS = 2.5


def whole_checks(golden: Golden, answers: WireTensors) -> tuple[GateCheck, ...]:
    """One check for each limit that the answers show; `batch_change` needs other requests."""
    detail = f"over {len(golden.rows)} requests"
    return _checks(golden, answers, range(len(golden.rows)), detail, groups=False)


def group_checks(golden: Golden, answers: WireTensors) -> dict[str, tuple[GateCheck, ...]]:
    """The same for the requests of each prompt and kind; none for bundles without the proven engine's own answers.

    Metrics over pairs of texts need more texts than a group has.
    """
    return {
        group: _checks(golden, answers, indices, f"of {len(indices)} requests, {group}", groups=True)
        for group, indices in (golden.groups().items() if golden.proven else ())
    }


def _checks(
    golden: Golden, answers: WireTensors, indices: Sequence[int], detail: str, *, groups: bool
) -> tuple[GateCheck, ...]:
    wanted, served = (
        {name: array[list(indices)] for name, array in side.items()} for side in (golden.tensors, answers)
    )
    reference, candidate = sides(golden.task, golden.numbers, wanted, served)
    metrics = {metric.name: metric for metric in task(golden.task).metrics if metric.readable(reference, candidate)}
    return tuple(
        _check(metric, Gate(limit.metric, limit.comparison, limit.limit), metric.rows(reference, candidate), detail)
        for limit in golden.limits
        if (metric := metrics.get(limit.metric)) and not (groups and metric.kind == "pooled")
    )


def _check(metric: Metric, gate: Gate, rows: Column, detail: str) -> GateCheck:
    check = point_check(gate, metric.statistic(rows)).model_copy(update={"detail": detail, "n": len(rows)})
    # The worst of all answers is no sample: its value decides.
    if check.holds or metric.kind == "worst":
        return check
    refuted = kind_breaks(metric, gate, rows, ALPHA, slack=_slack(metric, gate, rows))
    if refuted:
        return check.model_copy(update={"verdict": "broken"})
    return check.model_copy(update={"verdict": "proven", "detail": f"{detail}, as few requests may by chance"})


def _slack(metric: Metric, gate: Gate, rows: Column) -> float:
    """How far chance may carry the mean of these rows beyond its limit, as a multiple of the limit."""
    assumed = 1.0 + (KIND_SLACK - 1.0) * math.sqrt(_TEXTS_OF_SLACK / max(1, len(rows)))
    distance = abs(gate.limit - (1.0 if metric.at_least else 0.0))
    if metric.kind != "mean" or len(rows) < 2 or not distance:
        return assumed
    own = _STANDARD_ERRORS * float(np.std(rows, ddof=1)) / math.sqrt(len(rows)) / distance
    return max(assumed, 1.0 + own)
