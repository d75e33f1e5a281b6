"""The figures that a report shows, computed from its raw samples and stored nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.report import Report
from trimaran.core.choices import Objective
from trimaran.core.samples import Shape
from trimaran.core.spec import ShapeProfile
from trimaran.judging.stats import Ratio, combined, median, percentile, speedup

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
    """The shapes that decide the choice, the most important one first."""
    shapes = grid(profile)
    typical = Shape(batch=profile.batch.typical, sequence=profile.sequence.typical)
    if objective == "throughput":
        return (shapes[-1],)
    return tuple(dict.fromkeys((typical, shapes[0])))


def find(measurements: Sequence[Measurement], candidate: str, shape: Shape) -> Measurement | None:
    return next((m for m in measurements if m.candidate == candidate and m.shape == shape), None)


def speedups(measurements: Sequence[Measurement], candidate: str, *, reference: str) -> dict[Shape, Ratio]:
    """By shape, in the order of measuring, for the shapes at which both were measured."""
    ratios: dict[Shape, Ratio] = {}
    for mine in measurements:
        base = find(measurements, reference, mine.shape)
        if mine.candidate == candidate and base:
            ratios[mine.shape] = speedup(base.samples_by_round, mine.samples_by_round)
    return ratios


def speedups_of(report: Report, candidate: str) -> dict[Shape, Ratio]:
    """Over the report's reference, by shape."""
    return speedups(report.measurements, candidate, reference=report.reference.name)


def score(
    measurements: Sequence[Measurement], candidate: str, *, reference: str, shapes: Sequence[Shape]
) -> Ratio | None:
    """One speed-up over all of these shapes, or None when one of them was not measured."""
    by_shape = speedups(measurements, candidate, reference=reference)
    ratios = [by_shape[shape] for shape in shapes if shape in by_shape]
    return combined(ratios) if len(ratios) == len(shapes) else None


def rounds_of_race(measurements: Sequence[Measurement], reference: str) -> tuple[int, int]:
    """The rounds that the reference took part in, and how many further ones the leaders had."""
    counts = [len(measurement.rounds) for measurement in measurements]
    shared = max((len(row.rounds) for row in measurements if row.candidate == reference), default=0)
    return shared, max(counts, default=0) - shared


def shapes_of(measurements: Sequence[Measurement]) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(measurement.shape for measurement in measurements))


def largest(shapes: Sequence[Shape]) -> Shape:
    """The shape with the most tokens."""
    return max(shapes, key=lambda shape: shape.batch * shape.sequence)


def rows_per_second(measurement: Measurement) -> float:
    return measurement.shape.batch * 1e9 / median(measurement.samples_ns)


def percentiles(measurement: Measurement, shares: Sequence[float] = (50, 90, 99)) -> tuple[int, ...]:
    return tuple(percentile(measurement.samples_ns, share) for share in shares)
