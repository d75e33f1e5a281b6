"""The numbers that a report shows, computed from its raw samples and nowhere stored."""

from __future__ import annotations

from collections.abc import Sequence

from trimaran.benchmarks.report import Measurement, Objective, Shape
from trimaran.benchmarks.stats import Ratio, combined, median, percentile, speedup
from trimaran.spec import ShapeProfile

_SHORT = 16


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
    """Per shape at which both were measured, in the order of measuring."""
    found: dict[Shape, Ratio] = {}
    for mine in measurements:
        base = find(measurements, reference, mine.shape)
        if mine.candidate == candidate and base:
            found[mine.shape] = speedup(base.samples_by_round, mine.samples_by_round)
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


def unsteady(measurements: Sequence[Measurement], *, tolerance: float = 1.25) -> str:
    """A sentence when rounds of one candidate disagree with each other, which an idle machine does not do."""
    seen, total = 0, 0
    worst, worst_at = 1.0, ""
    for measurement in measurements:
        middle = median(measurement.samples_ns)
        for turn in measurement.rounds:
            ratio = median(turn.samples_ns) / middle
            apart = max(ratio, 1 / ratio)
            seen, total = seen + (apart > tolerance), total + 1
            if apart > worst:
                worst, worst_at = apart, f"{measurement.candidate} at {measurement.shape}"
    if not seen:
        return ""
    return (
        f"The machine was not quiet: {seen} of {total} turns differ by more than {tolerance:g} times from their "
        f"candidate's median, the worst {worst:.1f} times ({worst_at}). The intervals are as wide as that makes them."
    )
