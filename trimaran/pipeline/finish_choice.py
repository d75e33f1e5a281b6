"""Which plan `trimaran finish` publishes, and one sentence for each of the others why not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.figures import find
from trimaran.benchmarks.report.preference import equally_fast, loss
from trimaran.benchmarks.report.wording import listed
from trimaran.core.samples import Shape
from trimaran.judging.finished import FinishedCandidate
from trimaran.judging.stats import median


def choose_plan(
    rows: Sequence[FinishedCandidate], measurements: Sequence[Measurement], shapes: Sequence[Shape]
) -> tuple[str, list[FinishedCandidate]]:
    """The fastest plan over the decisive shapes. Of those that the rounds did not tell apart, the truest.

    So INT8 that is no faster than FP16 is not published. Empty if no plan keeps its gates and could be timed.
    """
    scores = {
        row.name: math.prod(times) ** (1 / len(times))
        for row in rows
        if row.verdict == "passed" and (times := _medians_ms(measurements, row.name, shapes))
    }
    if not scores:
        return "", [_untimed(row) if row.verdict == "passed" else row for row in rows]
    fastest = min(scores, key=scores.__getitem__)
    tied = equally_fast(measurements, list(scores), shapes, fastest)
    losses = {row.name: loss(row.quality) for row in rows}
    chosen = min(tied, key=lambda name: (losses[name], scores[name]))
    less_true = [name for name in tied if losses[name] > losses[chosen]]
    return chosen, [_ranked(row, chosen, scores, tied, less_true) for row in rows]


def _medians_ms(measurements: Sequence[Measurement], name: str, shapes: Sequence[Shape]) -> list[float]:
    """By shape; empty if one of them was not measured."""
    found = [find(measurements, name, shape) for shape in shapes]
    return [median(row.samples_ns) / 1e6 for row in found if row and row.samples_ns] if all(found) else []


def _ranked(
    row: FinishedCandidate, chosen: str, scores: Mapping[str, float], tied: list[str], less_true: list[str]
) -> FinishedCandidate:
    if row.verdict != "passed":
        return row
    if row.name not in scores:
        return _untimed(row)
    if row.name == chosen:
        why = "The fastest that keeps every gate."
        if less_true:
            why = (
                f"It keeps every gate and is truer than {listed(less_true)}, from which speed could not tell it apart."
            )
        return row.model_copy(update={"verdict": "chosen", "reason": why})
    times = f"{scores[row.name] / scores[chosen]:.2f} times as long as {chosen}"
    clear = ", which is no clear difference" if row.name in tied else ""
    return row.model_copy(update={"reason": f"It keeps every gate and takes {times}{clear}."})


def _untimed(row: FinishedCandidate) -> FinishedCandidate:
    return row.model_copy(update={"verdict": "failed", "reason": "It could not be timed."})
