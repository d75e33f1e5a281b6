"""A report checked against limits from a file: the rows that a CI job passes or fails by."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field
from pydantic import ValidationError as SchemaError

from trimaran.benchmarks.report.between_runs import FEWEST_RUNS, visible_change
from trimaran.benchmarks.report.compare import ChangeKind, ReportChange, ReportComparison, compare, scenario_words
from trimaran.benchmarks.report.figures import speedups_of
from trimaran.benchmarks.report.render_compare import comparison_cells
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.report.report_files import read_runs
from trimaran.benchmarks.report.wording import LABELLED, METRICS, SIGNS, metric_name, number
from trimaran.benchmarks.scenarios.finals import READINGS, ScenarioFigure, figures_of
from trimaran.benchmarks.scenarios.results import At, Wire
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen
from trimaran.core.tasks import TASKS
from trimaran.judging.judgement import Quality
from trimaran.judging.stats import fewest_samples, percentile, too_few_samples, upper_percentile

_SHAPE = re.compile(r"\d+x\d+")
_SHAPE_AND_SHARE = re.compile(r"(?P<shape>\d+x\d+) p(?P<share>\d+(\.\d+)?)")
_SHARE_IN_NAME = re.compile(r"\bp(\d+(?:\.\d+)?)\b")
NOT_MEASURED = "not measured"


class ScenarioGate(Frozen):
    """A limit on one figure of a scenario. The figure itself says whether higher or lower is better."""

    scenario: str
    figure: str
    limit: float
    # None is every level, every wire.
    at: At | None = None
    wire: Wire | None = None


class RegressionRule(Frozen):
    """No number may be worse than in a baseline report."""

    # A report.json, the folder that holds one, or a folder of such folders: several runs.
    baseline: str
    # How many times worse is still accepted.
    tolerance: float = Field(default=1.0, ge=1.0)
    kinds: tuple[ChangeKind, ...] = ("verdict", "speed", "scenario", "quality", "memory", "size")
    # Fewer runs on either side fail. Without it, three where times are compared: from three on it is known how much
    # runs differ from one another. One where they are not.
    runs: int | None = Field(default=None, ge=1)
    # Whether the baseline may come from another machine or other versions.
    unlike: bool = False

    @property
    def runs_wanted(self) -> int:
        return self.runs or (FEWEST_RUNS if {"speed", "scenario"} & set(self.kinds) else 1)


class GatesFile(Frozen):
    """The limits of one file."""

    # A name, `chosen`, or `servable` for every candidate that keeps its own gates.
    candidate: str = "chosen"
    # `bound` checks the worse end of the interval against the limit, `median` its middle.
    judge_by: Literal["bound", "median"] = "bound"
    # Whether a gate on a figure that the report does not have is broken, or only says so.
    unmeasured: Literal["broken", "accepted"] = "broken"
    # By shape: 1x128.
    speedup: dict[str, float] = {}
    # By shape and percentile: 1x128 p99.
    latency_ms: dict[str, float] = {}
    # By metric.
    quality: dict[str, float] = {}
    memory_mb: float | None = None
    size_mb: float | None = None
    scenario: tuple[ScenarioGate, ...] = ()
    regression: RegressionRule | None = None


class GateRow(NamedTuple):
    """One limit, and whether the report keeps it. A figure that was not measured keeps no limit."""

    gate: str
    candidate: str
    observed: str
    limit: str
    holds: bool


def read_gates(path: Path) -> GatesFile:
    """Raises UsageError with the key at fault."""
    if not path.is_file():
        raise UsageError(
            f"There is no gates file at {path}.", hint="`trimaran init ci github` writes one to start from."
        )
    try:
        gates = GatesFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except SchemaError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = f" Known: {', '.join(GatesFile.model_fields)}." if first["type"] == "extra_forbidden" else ""
        raise UsageError(f"{path}: {where}: {first['msg']}.{known}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    _refuse_unknown(gates, path)
    return gates


def hold(reports: Report | Sequence[Report], gates: GatesFile, *, folder: Path) -> tuple[GateRow, ...]:
    """Every gate against every gated candidate; `folder` is where a baseline's relative path starts.

    Of several runs the last is held against the limits. A regression is judged by the times of all of them.

    Raises UsageError when the file gates nothing or names a candidate that the report does not have.
    """
    runs = (reports,) if isinstance(reports, Report) else tuple(reports)
    report = runs[-1]
    rows = tuple(
        gate_row
        for row in _gated(report, gates)
        for check in (_speedup_rows, _latency_rows, _quality_rows, _footprint_rows, _scenario_rows)
        for gate_row in check(report, gates, row)
    )
    if gates.unmeasured == "accepted":
        rows = tuple(
            row._replace(observed=f"{NOT_MEASURED}, accepted", holds=True) if row.observed == NOT_MEASURED else row
            for row in rows
        )
    if gates.regression:
        rows += tuple(_regression_rows(runs, gates, gates.regression, folder))
    if not rows:
        raise UsageError("The gates file has no gate.", hint="Give at least one, such as [speedup] with 1x128 = 1.5.")
    return rows


def _gated(report: Report, gates: GatesFile) -> tuple[CandidateRow, ...]:
    if gates.candidate == "servable":
        return tuple(row for row in report.candidates if row.verdict in ("chosen", "passed"))
    name = report.verdict.chosen if gates.candidate == "chosen" else gates.candidate
    if name is None:
        return (report.reference.model_copy(update={"name": "nothing chosen"}),)
    rows = tuple(row for row in (*report.candidates, *report.baselines) if row.name == name)
    if not rows:
        known = ", ".join(row.name for row in report.candidates)
        raise UsageError(f"The report has no candidate {name!r} to gate.", hint=f"It has: {known}.")
    return rows


def _speedup_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    ratios = {str(shape): ratio for shape, ratio in speedups_of(report, row.name).items()}
    for shape, limit in gates.speedup.items():
        ratio = ratios.get(shape)
        value = ratio and (ratio.low if gates.judge_by == "bound" else ratio.median)
        observed = f"{ratio.low:.2f}–{ratio.high:.2f}× (median {ratio.median:.2f})" if ratio else NOT_MEASURED
        yield GateRow(f"speed-up at {shape}", row.name, observed, f"≥ {limit:g}×", value is not None and value >= limit)


def _latency_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    measured = {
        str(measurement.shape): measurement for measurement in report.measurements if measurement.candidate == row.name
    }
    for key, budget_ms in gates.latency_ms.items():
        match = _SHAPE_AND_SHARE.fullmatch(key)
        assert match is not None, "read_gates refuses other keys"
        timed, share = measured.get(match["shape"]), float(match["share"])
        observed, holds = NOT_MEASURED, False
        if timed and timed.samples_ns:
            value, high = percentile(timed.samples_ns, share) / 1e6, upper_percentile(timed.samples_ns, share)
            up_to = f"up to {high / 1e6:.3g}" if high else too_few_samples(share, len(timed.samples_ns))
            observed = f"{value:.3g} ms ({up_to})"
            holds = value <= budget_ms if gates.judge_by == "median" else high is not None and high / 1e6 <= budget_ms
        yield GateRow(f"latency at {key}", row.name, observed, f"≤ {budget_ms:g} ms", holds)


def _quality_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    for metric, limit in gates.quality.items():
        comparison = _comparison(metric)
        assert comparison is not None, "read_gates refuses other keys"
        value = row.quality.metrics.get(metric) if row.quality else None
        observed = NOT_MEASURED if value is None else number(value, digits=6)
        if row.quality and value is not None and gates.judge_by == "bound":
            bound = _worse_end(row.quality, metric, comparison, value)
            if bound != value:
                observed += f" ({'up' if comparison == '<=' else 'down'} to {number(bound, digits=6)})"
            value = bound
        holds = value is not None and (value <= limit if comparison == "<=" else value >= limit)
        yield GateRow(metric_name(metric), row.name, observed, f"{SIGNS[comparison]} {number(limit, digits=6)}", holds)


def _worse_end(quality: Quality, metric: str, comparison: str, value: float) -> float:
    """The proven bound of a metric, else the worse end of its interval; a metric without either is what it is."""
    if metric in quality.bounds:
        return quality.bounds[metric]
    low, high = quality.intervals.get(metric, (value, value))
    return high if comparison == "<=" else low


def _footprint_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    for name, limit_mb, size_bytes in (
        ("peak memory", gates.memory_mb, row.peak_memory_bytes),
        ("size on disk", gates.size_mb, row.size_bytes),
    ):
        if limit_mb is not None:
            observed = f"{size_bytes / 1e6:.4g} MB" if size_bytes else NOT_MEASURED
            holds = size_bytes is not None and 0 < size_bytes <= limit_mb * 1e6
            yield GateRow(name, row.name, observed, f"≤ {limit_mb:g} MB", holds)


def _scenario_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    for gate in gates.scenario:
        results = [
            result
            for result in report.scenarios
            if result.candidate == row.name
            and result.scenario == gate.scenario
            and gate.at in (None, result.at)
            and gate.wire in (None, result.wire)
        ]
        if not results:
            yield GateRow(f"{gate.scenario}: {gate.figure}", row.name, NOT_MEASURED, f"{gate.limit:g}", False)
        for result in results:
            name = f"{scenario_words(result)}: {gate.figure}"
            figure = next((figure for figure in figures_of(result) if figure.name == gate.figure), None)
            if figure is None or result.cut:
                yield GateRow(name, row.name, result.cut or NOT_MEASURED, f"{gate.limit:g}", False)
                continue
            if gates.judge_by == "bound" and (few := _too_few(figure)):
                yield GateRow(name, row.name, f"{number(figure.value)} {figure.unit} ({few})", f"{gate.limit:g}", False)
                continue
            against = figure.high if figure.better == "lower" else figure.low
            value = against if gates.judge_by == "bound" and against is not None else figure.value
            holds = value <= gate.limit if figure.better == "lower" else value >= gate.limit
            sign = SIGNS["<=" if figure.better == "lower" else ">="]
            observed = f"{number(figure.value, digits=4)} {figure.unit}"
            if value != figure.value:
                observed += f" ({'up' if figure.better == 'lower' else 'down'} to {number(value, digits=4)})"
            yield GateRow(name, row.name, observed, f"{sign} {gate.limit:g} {figure.unit}", holds)


def _too_few(figure: ScenarioFigure) -> str:
    """Why a figure that rests on a percentile proves nothing; empty where its samples are enough."""
    match = _SHARE_IN_NAME.search(figure.name)
    share = float(match[1]) if match else 0.0
    return too_few_samples(share, figure.n) if match and figure.n < fewest_samples(share) else ""


def _regression_rows(runs: Sequence[Report], gates: GatesFile, rule: RegressionRule, folder: Path) -> Iterator[GateRow]:
    before, report = read_runs(folder / rule.baseline), runs[-1]
    baseline = before[-1]
    comparison = compare(before, runs, allow_unlike=rule.unlike)
    names = {row.name for row in _gated(report, gates)}
    if gates.candidate == "chosen" and baseline.verdict.chosen:
        names.add(baseline.verdict.chosen)
    mine = [change for change in comparison.changes if change.candidate in names and change.kind in rule.kinds]
    worse = [change for change in mine if change.outcome == "worse" and _times_worse(change) > rule.tolerance]
    limit = f"no worse than {rule.baseline}" + (f" × {rule.tolerance:g}" if rule.tolerance > 1 else "")
    wanted = rule.runs_wanted
    if min(len(before), len(runs)) < wanted:
        needs = f"needs {wanted} runs a side, has {len(before)} and {len(runs)}"
        yield GateRow("regression: runs", ", ".join(sorted(names)), needs, f">= {wanted}", False)
    for change in worse:
        name, what, old, new, words = comparison_cells(change)
        yield GateRow(f"regression: {what}", name, f"{old} → {new}, {words}", limit, False)
    if not worse:
        what = f"{len(mine)} numbers compared; {_sides_words(comparison, mine)}" if mine else "no number in common"
        yield GateRow("regression", ", ".join(sorted(names)), what, limit, bool(mine))


def _sides_words(comparison: ReportComparison, changes: Sequence[ReportChange]) -> str:
    """How many runs there were, and which change of speed they would have shown."""
    ratios = [change.ratio for change in changes if change.kind == "speed" and change.ratio]
    words = comparison.sides.words()
    if not (comparison.sides.enough and ratios):
        return words
    return f"{words} A change of {max(map(visible_change, ratios)):.0%} or more of any speed would have been seen."


def _times_worse(change: ReportChange) -> float:
    """By the end of the interval that is nearest to no change."""
    if change.ratio:
        return 1 / change.ratio.high
    if isinstance(change.old, float) and isinstance(change.new, float) and change.kind in ("memory", "size"):
        return change.new / change.old
    return math.inf


def _comparison(metric: str) -> Literal["<=", ">="] | None:
    """Whether a limit on this metric is a floor or a ceiling; None when nothing is judged by it."""
    if metric.startswith(LABELLED):
        return ">="
    return next(
        (known.comparison for task in TASKS.values() for known in (task.change, *task.metrics) if known.name == metric),
        None,
    )


def _refuse_unknown(gates: GatesFile, path: Path) -> None:
    problems: tuple[tuple[str, tuple[str, ...], Callable[[str], object], str], ...] = (
        ("speedup", tuple(gates.speedup), _SHAPE.fullmatch, "Write BATCHxTOKENS, such as 1x128."),
        ("latency_ms", tuple(gates.latency_ms), _SHAPE_AND_SHARE.fullmatch, 'Write such as "1x128 p99".'),
        ("quality", tuple(gates.quality), _comparison, f"Known: {', '.join(METRICS)}."),
        (
            "scenario",
            tuple(g.scenario for g in gates.scenario),
            READINGS.__contains__,
            f"Known: {', '.join(READINGS)}.",
        ),
    )
    for section, keys, known, hint in problems:
        for key in keys:
            if not known(key):
                raise UsageError(f"{path}: [{section}] does not know {key!r}.", hint=hint)
