"""The numbers that a report shows, computed from its raw samples and nowhere stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trimaran.benchmarks.report.report import Measurement, Objective
from trimaran.core.samples import Shape
from trimaran.core.spec import ShapeProfile
from trimaran.judging.stats import Ratio, combined, median, percentile, speedup

_SHORT = 16
# A turn this many times off its candidate's median is named; so is a drift of all contenders together.
NOISE = 1.25
DRIFT = 1.1


def grid(profile: ShapeProfile) -> tuple[Shape, ...]:
    """The shapes to measure: a short text, a typical one, and the largest batch of typical ones."""
    typical = profile.sequence.typical
    short = max(profile.sequence.minimum, min(_SHORT, max(1, typical // 2)))
    shapes = (
        Shape(batch=profile.batch.typical, sequence=short),
        Shape(batch=profile.batch.typical, sequence=typical),
        Shape(batch=profile.batch.maximum, sequence=typical),
    )
    return tuple(dict.fromkeys(shapes))


def decisive(profile: ShapeProfile, objective: Objective) -> tuple[Shape, ...]:
    """The shapes that the choice rests on, the most telling one first."""
    shapes = grid(profile)
    typical = Shape(batch=profile.batch.typical, sequence=profile.sequence.typical)
    if objective == "throughput":
        return (shapes[-1],)
    return tuple(dict.fromkeys((typical, shapes[0])))


def find(measurements: Sequence[Measurement], candidate: str, shape: Shape) -> Measurement | None:
    return next((m for m in measurements if m.candidate == candidate and m.shape == shape), None)


def speedups(measurements: Sequence[Measurement], candidate: str, *, reference: str) -> dict[Shape, Ratio]:
    """Per shape at which both were measured, in the order of measuring, over the rounds that both took part in."""
    found: dict[Shape, Ratio] = {}
    for mine in measurements:
        base = find(measurements, reference, mine.shape)
        if mine.candidate == candidate and base:
            # Whoever left early, or was measured briefly, took part in the first rounds.
            both = min(len(base.rounds), len(mine.rounds))
            found[mine.shape] = speedup(base.samples_by_round[:both], mine.samples_by_round[:both])
    return found


def score(
    measurements: Sequence[Measurement], candidate: str, *, reference: str, shapes: Sequence[Shape]
) -> Ratio | None:
    """One speed-up over the decisive shapes, or None when one of them was not measured."""
    found = speedups(measurements, candidate, reference=reference)
    ratios = [found[shape] for shape in shapes if shape in found]
    return combined(ratios) if len(ratios) == len(shapes) else None


def shapes_of(measurements: Sequence[Measurement]) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(measurement.shape for measurement in measurements))


def rows_per_second(measurement: Measurement) -> float:
    return measurement.shape.batch * 1e9 / median(measurement.samples_ns)


def percentiles(measurement: Measurement, shares: Sequence[float] = (50, 90, 99)) -> tuple[int, ...]:
    return tuple(percentile(measurement.samples_ns, share) for share in shares)


class Flagged(NamedTuple):
    """A round whose median lies apart from its candidate's: kept in every number, and named."""

    candidate: str
    shape: Shape
    round: int
    times: float


def flagged_rounds(measurements: Sequence[Measurement], *, tolerance: float = NOISE) -> tuple[Flagged, ...]:
    """The rounds that differ, in the order of measuring; `times` is the round's median over the candidate's."""
    found = []
    for measurement in measurements:
        middle = median(measurement.samples_ns)
        for number, turn in enumerate(measurement.rounds):
            ratio = median(turn.samples_ns) / middle
            if max(ratio, 1 / ratio) > tolerance:
                found.append(Flagged(measurement.candidate, measurement.shape, number, ratio))
    return tuple(found)


def drift(measurements: Sequence[Measurement]) -> float:
    """How many times longer calls took in the last third of the rounds than in the first, over all contenders.

    The geometric mean: one noisy candidate does not make a drift, all of them slowing down together does.
    """
    ratios = []
    for measurement in measurements:
        third = len(measurement.rounds) // 3
        if third:
            early, late = (
                median([sample for turn in turns for sample in turn.samples_ns])
                for turns in (measurement.rounds[:third], measurement.rounds[-third:])
            )
            ratios.append(late / early)
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0


def unsteady(measurements: Sequence[Measurement], *, tolerance: float = NOISE) -> str:
    """Sentences when rounds of one candidate disagree, or all drift together, which an idle machine does not do."""
    said = []
    if flagged := flagged_rounds(measurements, tolerance=tolerance):
        total = sum(len(measurement.rounds) for measurement in measurements)
        worst = max(flagged, key=lambda one: max(one.times, 1 / one.times))
        apart = max(worst.times, 1 / worst.times)
        said.append(
            f"The machine was not quiet: {len(flagged)} of {total} turns differ by more than {tolerance:g} times from "
            f"their candidate's median, the worst {apart:.1f} times ({worst.candidate} at {worst.shape}). "
            "The intervals are as wide as that makes them."
        )
    moved = drift(measurements)
    if max(moved, 1 / moved) > DRIFT:
        direction = "slower" if moved > 1 else "faster"
        said.append(
            f"The machine drifted: calls of all contenders were {abs(moved - 1):.0%} {direction} in the last third of "
            "the rounds than in the first. Ratios compare within a round, so they stand; single times do not."
        )
    return " ".join(said)
