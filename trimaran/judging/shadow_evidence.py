"""Whether live answers still keep what was proven: the gate of one answer, and an e-process over answers that moved.

The proof says that at most 1 % of texts move by more than the gate. Each checked answer moved further or did not. Five
gamblers bet against the claim, each with another stake. While the claim is true, their mean wealth ever reaches
1,000 with a chance of at most 1 in 1,000, however long one looks. Example: where 5 % of texts move, it takes about 180
checked answers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimaran.core.metrics import Metric
from trimaran.core.spec import Frozen
from trimaran.core.tail import SHARE
from trimaran.core.tasks import task
from trimaran.core.tasks.task import WireTensors
from trimaran.judging.golden import Golden
from trimaran.judging.wire_fidelity import sides

ALARM_AT = 1000.0
# Stakes by the share that may move: 0.02 / 1 % is a stake of 2.
_STAKES = (0.02, 0.05, 0.1, 0.2, 0.4)
# By the gate's limit.
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class ShadowGate(NamedTuple):
    """What one answer is held against."""

    metric: Metric
    # The distance beyond which an answer moved: the gate's own, or 0 where answers only agree or differ.
    limit: float
    # The share of answers that may move further.
    may_move: float

    @property
    def buckets(self) -> tuple[float, ...]:
        """Upper ends of the histogram's buckets; the last one, infinity, is left out."""
        return tuple(float(f"{part * self.limit:.3g}") for part in _BUCKETS) if self.limit else (0.0,)

    def distance(self, golden: Golden, wanted: WireTensors, served: WireTensors) -> float | None:
        """How far one served answer is from the fp32 graph's; None where it says nothing, such as a text without
        entities on both sides. An answer that is no number is infinitely far.
        """
        reference, candidate = sides(golden.task, golden.numbers, wanted, served)
        if not self.metric.readable(reference, candidate):
            return None
        rows = self.metric.rows(reference, candidate)
        if not len(rows):
            return None
        worst = float((1.0 - rows if self.metric.at_least else rows).max())
        return max(0.0, worst) if math.isfinite(worst) else math.inf


def shadow_gate(golden: Golden) -> ShadowGate | None:
    """The first gate that a single answer can keep or break: on a tail, else on a share, else on the worst change."""
    limits = {limit.metric: limit.limit for limit in golden.limits}
    gated = [metric for metric in task(golden.task).metrics if metric.name in limits]
    for kind in ("tail", "share", "worst"):
        for metric in (metric for metric in gated if metric.kind == kind):
            if kind == "share":
                return ShadowGate(metric, 0.0, max(SHARE, 1.0 - limits[metric.name]))
            return ShadowGate(metric, limits[metric.name], SHARE)
    return None


class ShadowEvidence(Frozen):
    """What the shadow check has seen of one version of a model. No text is in it."""

    model: str
    version: str
    # Why the version cannot be checked; empty where it is.
    problem: str = ""
    metric: str = ""
    limit: float = 0.0
    may_move: float = SHARE
    checked: int = 0
    moved: int = 0
    # The logarithm of each gambler's wealth.
    log_wealth: tuple[float, ...] = (0.0,) * len(_STAKES)
    # The evidence once reached `ALARM_AT`. It stays so until the server is started again.
    alarm: bool = False

    @property
    def log_evidence(self) -> float:
        """The logarithm of the e-value: the mean wealth."""
        return float(np.logaddexp.reduce(self.log_wealth) - math.log(len(self.log_wealth)))

    @property
    def evidence(self) -> float:
        return math.exp(min(self.log_evidence, 700.0))

    def after(self, distance: float) -> ShadowEvidence:
        moved = distance > self.limit
        gains = [math.log1p(stake * (moved - self.may_move) / self.may_move) for stake in _STAKES]
        wealth = tuple(before + gain for before, gain in zip(self.log_wealth, gains, strict=True))
        seen = self.model_copy(update={"checked": self.checked + 1, "moved": self.moved + moved, "log_wealth": wealth})
        return seen.model_copy(update={"alarm": self.alarm or seen.log_evidence >= math.log(ALARM_AT)})

    def __str__(self) -> str:
        name = f"{self.model} version {self.version}"
        if self.problem:
            return f"{name} is not checked: {self.problem}"
        limit = f"by more than {self.limit:g} ({self.metric})" if self.limit else f"({self.metric})"
        mark = "ALARM: " if self.alarm else ""
        return (
            f"{mark}{name}: {self.moved:,} of {self.checked:,} checked answers moved {limit}, "
            f"{100 * self.may_move:.3g} % may; evidence {self.evidence:.3g}, alarm at {ALARM_AT:,.0f}"
        )


class ShadowState(Frozen):
    """The file of a server's shadow: what it has seen of each version."""

    versions: tuple[ShadowEvidence, ...] = ()
