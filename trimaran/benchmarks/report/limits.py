"""Each candidate's share of the measured ceiling: how much of its time the model's bare matrix products would take."""

from __future__ import annotations

from typing import NamedTuple

from trimaran.benchmarks.measure.ceiling import Arithmetic, Ceiling
from trimaran.benchmarks.report.figures import find
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.core.samples import Shape
from trimaran.judging.stats import median


class Share(NamedTuple):
    """`share` of the ceiling that `candidate` reaches at `shape`, in the arithmetic that its precision allows."""

    candidate: str
    verdict: str
    shape: Shape
    arithmetic: Arithmetic
    seconds: float
    bare_seconds: float

    @property
    def share(self) -> float:
        return self.bare_seconds / self.seconds


def arithmetic_of(row: CandidateRow) -> Arithmetic:
    if row.precision.startswith("int8"):
        return "int8"
    return "float32" if row.precision == "fp32" else "bfloat16"


def shares(report: Report) -> tuple[Share, ...]:
    """Of every contender that was timed at a shape whose ceiling is known, in the order of the report."""
    return tuple(
        Share(
            row.name,
            row.verdict,
            ceiling.shape,
            arithmetic_of(row),
            median(found.samples_ns) / 1e9,
            ceiling.seconds(arithmetic_of(row)),
        )
        for row in (report.reference, *report.baselines, *report.candidates)
        for ceiling in report.ceilings
        if (found := find(report.measurements, row.name, ceiling.shape))
    )


def peak(ceiling: Ceiling, arithmetic: Arithmetic) -> float:
    """Operations per second of the model's products, each by its fastest kernel in this arithmetic."""
    timed = [bare for bare in ceiling.bare if bare.arithmetic == arithmetic]
    return sum(bare.product.operations for bare in timed) / sum(bare.seconds for bare in timed) if timed else 0.0
