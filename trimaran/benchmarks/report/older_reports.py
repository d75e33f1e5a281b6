"""Reports that counted speed-ups over the samples of all rounds: their sentences are told anew, within rounds."""

from __future__ import annotations

from trimaran.benchmarks.report.choice import over_eager, speed_sentence
from trimaran.benchmarks.report.figures import decisive, speedups_of
from trimaran.benchmarks.report.report import Report
from trimaran.judging.stats import combined, separated

NOTE = (
    "This report is from a version that took speed-ups over the samples of all rounds. They are computed anew here, "
    "within rounds; what was chosen then stays."
)


def retold(report: Report) -> Report:
    """What was chosen stays, because it is what was deployed. Tables and plots are computed anew in any case."""
    chosen = report.verdict.chosen
    shapes = decisive(report.profile, report.objective)
    ratios = {row.name: speedups_of(report, row.name) for row in report.candidates}
    timed = {name for name, by_shape in ratios.items() if all(shape in by_shape for shape in shapes)}
    if chosen is None or chosen not in timed:
        return report
    overall = combined([ratios[chosen][shape] for shape in shapes])
    speed = speed_sentence(
        chosen,
        model=report.model,
        level=report.level,
        measurements=report.measurements,
        ratios=ratios[chosen],
        shapes=shapes,
        overall=overall,
        objective=report.objective,
    )
    rows = tuple(
        # "It keeps every gate, slower than quick: 1.50× at 1x128." keeps what stands before its figures.
        row.model_copy(update={"reason": f"{row.reason.partition(':')[0]}. {over_eager(ratios[row.name], shapes)}"})
        if row.name in timed and row.verdict in ("chosen", "passed")
        else row
        for row in report.candidates
    )
    verdict = report.verdict.model_copy(update={"speed": speed, "difference": separated(overall)})
    return report.model_copy(update={"candidates": rows, "verdict": verdict, "notes": (*report.notes, NOTE)})
