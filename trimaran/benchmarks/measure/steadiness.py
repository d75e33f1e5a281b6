"""Whether the machine was steady: rounds that disagree, drift of all candidates, other work beside them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.core.samples import Shape
from trimaran.judging.stats import median, pooled

# A round this many times off its candidate's median is flagged.
NOISE = 1.25
# All candidates together slower or faster by this factor is drift.
DRIFT = 1.1
# Other work that delays the usual turn by more than this share of it is told beside every speed-up.
DELAY_TOLD = 0.05


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


def usual_delay(measurements: Sequence[Measurement]) -> float | None:
    """How long threads waited for a CPU, as a share of the turn: the median over all turns. None: it is not known."""
    delays = [turn.delayed for row in measurements for turn in row.rounds if turn.delayed is not None]
    return statistics.median(delays) if delays else None


def beside_words(measurements: Sequence[Measurement]) -> str:
    """`, beside other work that delayed calls by 12%`, where it was enough to matter."""
    delay = usual_delay(measurements) or 0.0
    return f", beside other work that delayed calls by {delay:.0%}" if delay > DELAY_TOLD else ""


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
    if beside := beside_words(measurements).removeprefix(", "):
        sentences.append(
            f"All was measured {beside}, half of the turns by more. Eager PyTorch can lose more by it than candidates "
            "do, so speed-ups over it may be too high. Candidates compare with each other as on a quiet machine."
        )
    moved = drift(measurements)
    if max(moved, 1 / moved) > DRIFT:
        direction = "slower" if moved > 1 else "faster"
        sentences.append(
            f"The machine drifted: calls of all contenders were {abs(moved - 1):.0%} {direction} in the last third of "
            "the rounds than in the first. Ratios compare within a round, so they stand; single times do not."
        )
    return " ".join(sentences)
