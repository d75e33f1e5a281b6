"""What changed between two reports. A change counts only where the intervals separate, on machines that are alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.between_runs import RunSides, visible_change
from trimaran.benchmarks.report.comparability import UnlikeCondition, require_alike
from trimaran.benchmarks.report.figures import find, speedups_of
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.report.wording import LABELLED, level_words, times
from trimaran.benchmarks.scenarios.finals import ScenarioFigure, figures_of
from trimaran.benchmarks.scenarios.results import ScenarioResult
from trimaran.core.tasks import Gate, task
from trimaran.judging.on_teacher import TEACHER
from trimaran.judging.stats import MARGIN, Ratio, SpeedDifference, median, over_rounds, separated

ChangeKind = Literal["verdict", "speed", "scenario", "quality", "memory", "size"]
ChangeOutcome = Literal["better", "worse", "same"]

# Memory is one reading of a process, without an interval; the same engine twice stays within this.
MEMORY_MARGIN = 0.05
SIZE_MARGIN = 0.01
# Share of the way from a perfect metric to the gate's limit. The same engine answers the same texts alike.
QUALITY_MARGIN = 0.05
# Of a metric of labelled data: half a point.
DATA_MARGIN = 0.005
_OUTCOMES: dict[SpeedDifference, ChangeOutcome] = {"faster": "better", "slower": "worse", "no difference": "same"}
_SERVABLE = ("chosen", "passed", "reference", "baseline")


class ReportChange(NamedTuple):
    """One number that both reports have."""

    kind: ChangeKind
    candidate: str
    # A shape, a metric, or a scenario and its figure.
    where: str
    old: float | str
    new: float | str
    unit: str
    outcome: ChangeOutcome
    # How many times better the new number is, where it has an interval.
    ratio: Ratio | None = None
    note: str = ""


class ReportComparison(NamedTuple):
    """Two reports side by side."""

    old: Report
    new: Report
    unlike: tuple[UnlikeCondition, ...]
    changes: tuple[ReportChange, ...]
    # Candidates that only the old or only the new report has.
    gone: tuple[str, ...]
    added: tuple[str, ...]
    # The runs behind both reports, which are the last of theirs.
    sides: RunSides

    @property
    def two_models(self) -> bool:
        """A teacher and its student, for example. Then every number is of interest, not only what changed."""
        return self.old.model != self.new.model

    def of(self, outcome: ChangeOutcome) -> tuple[ReportChange, ...]:
        return tuple(change for change in self.changes if change.outcome == outcome)


def compare(
    old: Report | Sequence[Report],
    new: Report | Sequence[Report],
    *,
    allow_unlike: bool = False,
    two_models: bool = False,
) -> ReportComparison:
    """Every number that both reports have. Raises UsageError when they are unlike and that was not asked for.

    `two_models` allows reports of two models for the same task, such as a teacher and its student.
    A side of several runs is compared by the times of all of them, and by everything else of the last.
    """
    sides = RunSides(*((side,) if isinstance(side, Report) else tuple(side) for side in (old, new)))
    old, new = sides.old[-1], sides.new[-1]
    unlike = require_alike((old, *sides.old[:-1], *sides.new), allow_unlike=allow_unlike, two_models=two_models)
    mine = {row.name: row for row in old.rows}
    theirs = {row.name: row for row in new.rows}
    changes = [
        *(change for name in mine if name in theirs for change in _row_changes(old, new, mine[name], theirs[name])),
        *_speed_changes(old, new, sides),
        *_scenario_changes(old, new),
    ]
    return ReportComparison(
        old,
        new,
        unlike,
        tuple(changes),
        gone=tuple(name for name in mine if name not in theirs),
        added=tuple(name for name in theirs if name not in mine),
        sides=sides,
    )


def _row_changes(old: Report, new: Report, before: CandidateRow, after: CandidateRow) -> Iterator[ReportChange]:
    name = before.name
    was, is_ = before.verdict in _SERVABLE, after.verdict in _SERVABLE
    if (before.verdict == "chosen") != (after.verdict == "chosen") or was != is_:
        outcome: ChangeOutcome = "same" if was == is_ else "better" if is_ else "worse"
        yield ReportChange(
            "verdict", name, "verdict", before.verdict, after.verdict, "", outcome, note="" if is_ else after.reason
        )
    if before.quality and after.quality and before.quality.texts == after.quality.texts:
        gates = {gate.metric: gate for gate in (*_all_gates(old), *old.gates)}
        for metric, value in before.quality.metrics.items():
            if metric in after.quality.metrics and metric in gates:
                yield _quality_change(name, gates[metric], value, after.quality.metrics[metric])
        if old.model != new.model:
            yield from _model_changes(name, before.quality.metrics, after.quality.metrics)
    if before.size_bytes and after.size_bytes:
        yield _plain_change("size", name, before.size_bytes / 1e6, after.size_bytes / 1e6, SIZE_MARGIN)
    # A candidate that is not served is not measured either; its peak is then that of judging it.
    if was == is_ and before.peak_memory_bytes and after.peak_memory_bytes:
        peaks = before.peak_memory_bytes / 1e6, after.peak_memory_bytes / 1e6
        yield _plain_change("memory", name, *peaks, MEMORY_MARGIN)


def _model_changes(name: str, old: Mapping[str, float], new: Mapping[str, float]) -> Iterator[ReportChange]:
    """Metrics of labelled data, and those of a student against its teacher, which its report does not have."""
    for metric, value in new.items():
        if metric.startswith(TEACHER):
            yield ReportChange("quality", name, metric, "–", value, "", "same")
        elif metric.startswith(LABELLED) and f"{metric}_eager" in new and metric in old:
            lost = old[metric] - value
            outcome: ChangeOutcome = "same" if abs(lost) <= DATA_MARGIN else "worse" if lost > 0 else "better"
            yield ReportChange("quality", name, metric, old[metric], value, "", outcome)


def _quality_change(name: str, gate: Gate, old: float, new: float) -> ReportChange:
    """Whether an answer's distance moved by more than a small share of what its gate leaves."""
    perfect = 0.0 if gate.comparison == "<=" else 1.0
    room = abs(perfect - gate.limit) or 1e-9
    lost = (abs(perfect - new) - abs(perfect - old)) / room
    outcome: ChangeOutcome = "same" if abs(lost) <= QUALITY_MARGIN else "worse" if lost > 0 else "better"
    if not math.isfinite(new) or not math.isfinite(old):
        outcome = "same" if math.isfinite(new) == math.isfinite(old) else "better" if math.isfinite(new) else "worse"
    return ReportChange("quality", name, gate.metric, old, new, "", outcome)


def _plain_change(
    kind: Literal["size", "memory"], name: str, old_mb: float, new_mb: float, margin: float
) -> ReportChange:
    where = "size on disk" if kind == "size" else "peak memory"
    return ReportChange(kind, name, where, old_mb, new_mb, "MB", _by_growth(new_mb / old_mb, margin))


def _by_growth(grown: float, margin: float) -> ChangeOutcome:
    return "worse" if grown > 1 + margin else "better" if grown < 1 / (1 + margin) else "same"


def _speed_changes(old: Report, new: Report, sides: RunSides) -> Iterator[ReportChange]:
    """A candidate got faster only if it did so against the clock AND against the eager PyTorch beside it.

    Two runs are not side by side. A machine that was slower that day slows both, so eager must not show the change.
    """
    for after in new.measurements:
        before = find(old.measurements, after.candidate, after.shape)
        if before is None:
            continue
        clock = divided(_round_medians(before), _round_medians(after))
        if sides.enough:
            clock = sides.clock(after.candidate, after.shape) or clock
        seen, note = separated(clock), ""
        # Of two models, eager PyTorch differs as the candidates do: it says nothing of the machine.
        if after.candidate != new.reference.name and seen != "no difference" and old.model == new.model:
            within = _against_eager(old, new, after)
            beside = sides.over_eager(after.candidate, after.shape) if sides.enough else within
            if beside and separated(beside) != seen:
                seen, note = "no difference", f"eager changed likewise: {times(beside)} beside it"
        if sides.enough and seen == "no difference" and not note:
            note = f"a change of {visible_change(clock):.0%} or more would have been seen"
        outcome = _OUTCOMES[seen]
        medians = median(before.samples_ns) / 1e6, median(after.samples_ns) / 1e6
        yield ReportChange("speed", after.candidate, str(after.shape), *medians, "ms", outcome, clock, note)


def _against_eager(old: Report, new: Report, after: Measurement) -> Ratio | None:
    then, now = (speedups_of(report, after.candidate).get(after.shape) for report in (old, new))
    return divided(now, then) if then and now else None


def _round_medians(measurement: Measurement) -> Ratio:
    """Two runs share no round, so each side is the median of its own rounds' median times."""
    return over_rounds([median(samples) for samples in measurement.samples_by_round])


def divided(upper: Ratio, lower: Ratio) -> Ratio:
    """The quotient of two ratios from separate runs: their errors are independent, so they add as squares."""
    middle = upper.median / lower.median
    down = math.hypot(math.log(upper.median / upper.low), math.log(lower.high / lower.median))
    up = math.hypot(math.log(upper.high / upper.median), math.log(lower.median / lower.low))
    return Ratio(middle, middle * math.exp(-down), middle * math.exp(up), min(upper.rounds, lower.rounds))


def _scenario_changes(old: Report, new: Report) -> Iterator[ReportChange]:
    before = {_key(result): result for result in old.scenarios if not result.cut}
    for result in new.scenarios:
        earlier = before.get(_key(result))
        if earlier is None or result.cut:
            continue
        figures = {figure.name: figure for figure in figures_of(earlier)}
        for figure in figures_of(result):
            if figure.name in figures and (change := _figure_change(result, figures[figure.name], figure)):
                yield change


def _figure_change(result: ScenarioResult, old: ScenarioFigure, new: ScenarioFigure) -> ReportChange | None:
    """None where a figure has neither an interval nor a margin of its own."""
    where = f"{scenario_words(result)}: {new.name}"
    if old.low is None or old.high is None or new.low is None or new.high is None:
        margins = {"memory": MEMORY_MARGIN, "size": SIZE_MARGIN}
        margin = margins.get(result.scenario)
        if margin is None or old.value <= 0:
            return None
        outcome = _by_growth(new.value / old.value, margin)
        return ReportChange("scenario", result.candidate, where, old.value, new.value, new.unit, outcome)
    if min(old.low, new.low, old.value, new.value) <= 0:
        return None
    ratio = (
        Ratio(new.value / old.value, new.low / old.high, new.high / old.low)
        if new.better == "higher"
        else Ratio(old.value / new.value, old.low / new.high, old.high / new.low)
    )
    outcome = "better" if ratio.low > 1 + MARGIN else "worse" if ratio.high < 1 / (1 + MARGIN) else "same"
    return ReportChange("scenario", result.candidate, where, old.value, new.value, new.unit, outcome, ratio)


def scenario_words(result: ScenarioResult) -> str:
    """`single-stream, served over grpc`."""
    return f"{result.scenario}, {level_words(result)}"


def _key(result: ScenarioResult) -> tuple[object, ...]:
    """What two results must share to be compared: the texts and threads are part of it."""
    texts = result.texts.digest if result.texts else None
    return result.scenario, result.candidate, result.at, result.wire, result.target, result.threads, texts


def _all_gates(report: Report) -> tuple[Gate, ...]:
    return tuple(gate for level in ("exact", "balanced", "strict") for gate in task(report.task).gates[level])
