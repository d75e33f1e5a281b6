"""How much a figure differs from run to run, so that two sides of several runs each can be compared.

The interval within one run knows only that run's rounds. Two runs of the same code differ by more: another placement in
memory, another neighbour on the host. Only several runs a side show by how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimaran.benchmarks.report.figures import find, speedups_of
from trimaran.benchmarks.report.report import Report
from trimaran.core.samples import Shape
from trimaran.judging.stats import CONFIDENCE, MARGIN, Ratio, median, percentile

# Runs a side from which on the variance between them counts.
FEWEST_RUNS = 3


class RunSides(NamedTuple):
    """The runs of both sides of a comparison."""

    old: tuple[Report, ...]
    new: tuple[Report, ...]

    @property
    def enough(self) -> bool:
        return min(map(len, self)) >= FEWEST_RUNS

    def words(self) -> str:
        """What a reader must know of the number of runs."""
        if self.enough:
            return f"{len(self.old)} and {len(self.new)} runs: intervals include how much runs differ from one another."
        runs = "One run a side" if max(map(len, self)) == 1 else f"{len(self.old)} and {len(self.new)} runs"
        return (
            f"{runs}: how much runs differ from one another is unknown. Give a folder with at least {FEWEST_RUNS} runs "
            "for each side."
        )

    def clock(self, candidate: str, shape: Shape) -> Ratio | None:
        """How many times faster the new runs are by their median times."""
        old, new = (_times(side, candidate, shape) for side in self)
        return ratio_of_runs(old, new) if old and new else None

    def over_eager(self, candidate: str, shape: Shape) -> Ratio | None:
        """How many times larger the speed-up over eager is in the new runs."""
        old, new = (
            [ratio.median for run in side if (ratio := speedups_of(run, candidate).get(shape))] for side in self
        )
        return ratio_of_runs(new, old) if old and new else None


def ratio_of_runs(upper: Sequence[float], lower: Sequence[float]) -> Ratio:
    """The quotient of the geometric means with Welch's interval; infinite where a side has a single run."""
    from scipy.stats import ttest_ind

    above, below = np.log(upper), np.log(lower)
    middle = math.exp(above.mean() - below.mean())
    if min(len(above), len(below)) < 2:
        return Ratio(middle, 0.0, math.inf)
    if not above.std() + below.std():
        return Ratio(middle, middle, middle)
    ends = ttest_ind(above, below, equal_var=False).confidence_interval(CONFIDENCE)
    return Ratio(middle, math.exp(ends.low), math.exp(ends.high))


def visible_change(ratio: Ratio) -> float:
    """The smallest change that this comparison would have told from none, as a share."""
    return ratio.high / ratio.median * (1 + MARGIN) - 1


def _times(runs: Sequence[Report], candidate: str, shape: Shape) -> list[float]:
    timed = (find(run.measurements, candidate, shape) for run in runs)
    return [
        float(percentile([median(samples) for samples in measurement.samples_by_round], 50))
        for measurement in timed
        if measurement is not None
    ]
