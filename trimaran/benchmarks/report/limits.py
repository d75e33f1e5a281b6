"""Each candidate's share of the measured ceiling: how much of its time the model's bare matrix products would take."""

from __future__ import annotations

from typing import NamedTuple

from trimaran.benchmarks.measure.ceiling import Arithmetic, Ceiling
from trimaran.benchmarks.report.figures import find, largest
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.core.samples import Shape
from trimaran.judging.stats import median


class CeilingShare(NamedTuple):
    """How near one candidate comes to the ceiling at one shape."""

    candidate: str
    verdict: str
    shape: Shape
    # What its precision allows.
    arithmetic: Arithmetic
    # The candidate's median time, and that of the bare products.
    seconds: float
    bare_seconds: float

    @property
    def share(self) -> float:
        return self.bare_seconds / self.seconds


def arithmetic_of(row: CandidateRow) -> Arithmetic:
    if row.precision.startswith("int8"):
        return "int8"
    return "float32" if row.precision == "fp32" else "bfloat16"


def shares(report: Report) -> tuple[CeilingShare, ...]:
    """Of every candidate that was timed at a shape with a ceiling, in the order of the report."""
    return tuple(
        CeilingShare(
            row.name,
            row.verdict,
            ceiling.shape,
            arithmetic_of(row),
            median(measurement.samples_ns) / 1e9,
            ceiling.seconds(arithmetic_of(row)),
        )
        for row in report.rows
        for ceiling in report.ceilings
        if (measurement := find(report.measurements, row.name, ceiling.shape))
    )


def peak(ceiling: Ceiling, arithmetic: Arithmetic) -> float:
    """Operations per second of the model's products, each by its fastest kernel in this arithmetic."""
    timed = [bare for bare in ceiling.bare if bare.arithmetic == arithmetic]
    return sum(bare.product.operations for bare in timed) / sum(bare.seconds for bare in timed) if timed else 0.0


def above_words(report: Report) -> str:
    """What a share above 100 % means, where the report has one; else nothing."""
    above = [f"{reached.candidate} at {reached.shape}" for reached in shares(report) if round(reached.share, 2) > 1]
    if not above:
        return ""
    return (
        f"Above 100 %: {', '.join(above)}. The ceiling is what the best of the bare kernels reached at another moment, "
        "not the limit of the CPU. An engine passes it with a faster kernel of its own, such as one for weights packed "
        "ahead, or where the machine was slower while the bare products ran."
    )


def peaks_words(report: Report) -> str:
    """`At 32x128 floats reach 120 and integers 560 · 10⁹ operations per second.`"""
    shape = largest([ceiling.shape for ceiling in report.ceilings])
    ceiling = next(ceiling for ceiling in report.ceilings if ceiling.shape == shape)
    floats, integers = (peak(ceiling, arithmetic) / 1e9 for arithmetic in ("float32", "int8"))
    return f"At {shape} floats reach {floats:.0f} and integers {integers:.0f} · 10⁹ operations per second."
