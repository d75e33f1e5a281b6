"""Which proven candidate to prefer: the fastest, but the truest of those whose speed could not be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimaran.benchmarks.measure.halving import leaders
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.figures import find
from trimaran.benchmarks.report.report import CandidateRow
from trimaran.core.samples import Shape
from trimaran.judging.judgement import Quality
from trimaran.judging.on_teacher import TEACHER
from trimaran.judging.stats import MARGIN, Ratio

# How rows may share a call has a gate too, but it says nothing of how true an answer is.
_NOT_TRUTH = ("batch_change",)


class Preference(NamedTuple):
    best: str
    # All whose speed could not be told from the fastest one's, `best` among them.
    equally_fast: tuple[str, ...]
    # Candidates that are slower than eager somewhere while others are not: the shape and the ratio.
    slower_than_eager: Mapping[str, tuple[Shape, Ratio]]


def preferred(
    rows: Sequence[CandidateRow],
    measurements: Sequence[Measurement],
    *,
    scores: Mapping[str, Ratio],
    ratios: Mapping[str, Mapping[Shape, Ratio]],
    shapes: Sequence[Shape],
) -> Preference:
    """Of the rows that have a score. `ratios` are their speed-ups over eager at every measured shape."""
    slower = {name: worst for name in scores if (worst := _slowest(ratios[name]))[1].median < 1 / (1 + MARGIN)}
    left = [name for name in scores if name not in slower]
    if not left:
        left, slower = list(scores), {}
    fastest = max(left, key=lambda name: scores[name].median)
    tied = equally_fast(measurements, left, shapes, fastest)
    losses = {row.name: loss(row.quality) for row in rows if row.name in tied}
    best = min(tied, key=lambda name: (losses[name], -scores[name].median))
    return Preference(best, tuple(tied), slower)


def truest(rows: Sequence[CandidateRow]) -> str | None:
    """Of the rows that keep their gates; the first of equally true ones."""
    passed = [row for row in rows if row.verdict == "passed"]
    return min(passed, key=lambda row: loss(row.quality)).name if passed else None


def loss(quality: Quality | None) -> float:
    """The largest share of what a gate leaves that a candidate uses, in whole percent: 0 is as eager answers.

    Candidates that differ by less are equally true: both are then a matter of the last digits.
    """
    shares = [
        abs(perfect - float(check.observed)) / (abs(perfect - float(check.limit)) or 1e-9)
        for check in (quality.checks if quality else ())
        if check.name not in _NOT_TRUTH
        and not check.name.startswith(TEACHER)
        and not isinstance(check.observed, str)
        and not isinstance(check.limit, str)
        for perfect in ((0.0 if check.comparison == "<=" else 1.0),)
    ]
    return round(max(shares, default=0.0), 2)


def _slowest(ratios: Mapping[Shape, Ratio]) -> tuple[Shape, Ratio]:
    return min(ratios.items(), key=lambda pair: pair[1].median)


def equally_fast(
    measurements: Sequence[Measurement], names: Sequence[str], shapes: Sequence[Shape], fastest: str
) -> list[str]:
    """The fastest, and those whose speed at these shapes could not be told from its speed."""
    rounds = {
        name: {shape: measurement.rounds for shape in shapes if (measurement := find(measurements, name, shape))}
        for name in names
    }
    return leaders(rounds, fastest)
