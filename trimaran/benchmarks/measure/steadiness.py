"""Whether the machine was steady: rounds of one candidate that disagree, and drift of all candidates together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.core.samples import Shape
from trimaran.judging.stats import median, pooled

# A round this many times off its candidate's median is flagged.
NOISE = 1.25
# All candidates together slower or faster by this factor is drift.
DRIFT = 1.1


class FlaggedRound(NamedTuple):
    """A round whose median is far from its candidate's. It stays in every figure, and the report names it."""

    candidate: str
    shape: Shape
    round: int
    # The round's median over the candidate's.
    times: float

    @property
    def factor(self) -> float:
        return max(self.times, 1 / self.times)


def flagged_rounds(measurements: Sequence[Measurement], *, tolerance: float = NOISE) -> tuple[FlaggedRound, ...]:
    """The rounds that differ by more than `tolerance`, in the order of measuring."""
    rounds = (
        FlaggedRound(
            measurement.candidate, measurement.shape, number, median(turn.samples_ns) / median(measurement.samples_ns)
        )
        for measurement in measurements
        for number, turn in enumerate(measurement.rounds)
    )
    return tuple(flagged for flagged in rounds if flagged.factor > tolerance)


def drift(measurements: Sequence[Measurement]) -> float:
    """How many times longer calls took in the last third of the rounds than in the first, over all candidates.

    This is a geometric mean: one noisy candidate does not make a drift, but all of them slowing down together does.
    """
    ratios = []
    for measurement in measurements:
        third = len(measurement.rounds) // 3
        if third:
            early, late = measurement.samples_by_round[:third], measurement.samples_by_round[-third:]
            ratios.append(median(pooled(late)) / median(pooled(early)))
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def unsteady(measurements: Sequence[Measurement], *, tolerance: float = NOISE) -> str:
    """Sentences for a reader where rounds disagree or all candidates drift; empty on a steady machine."""
    sentences = []
    if flagged := flagged_rounds(measurements, tolerance=tolerance):
        total = sum(len(measurement.rounds) for measurement in measurements)
        worst = max(flagged, key=lambda measurement: measurement.factor)
        sentences.append(
            f"The machine was not quiet: {len(flagged)} of {total} turns differ by more than {tolerance:g} times from "
            f"their candidate's median, the worst {worst.factor:.1f} times ({worst.candidate} at {worst.shape}). "
            "The intervals are as wide as that makes them."
        )
    moved = drift(measurements)
    if max(moved, 1 / moved) > DRIFT:
        direction = "slower" if moved > 1 else "faster"
        sentences.append(
            f"The machine drifted: calls of all contenders were {abs(moved - 1):.0%} {direction} in the last third of "
            "the rounds than in the first. Ratios compare within a round, so they stand; single times do not."
        )
    return " ".join(sentences)
