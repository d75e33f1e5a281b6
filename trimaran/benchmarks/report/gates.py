"""A report held against limits from a file: the rows that a CI job passes or fails by."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field
from pydantic import ValidationError as SchemaError

from trimaran.benchmarks.report.compare import ChangeKind, ReportChange, compare, scenario_words
from trimaran.benchmarks.report.figures import speedups
from trimaran.benchmarks.report.render_compare import comparison_cells
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.report.wording import LABELLED, METRICS, SIGNS, interval, metric_name, number
from trimaran.benchmarks.scenarios.finals import READINGS, figures_of
from trimaran.benchmarks.scenarios.results import At, Wire
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen
from trimaran.core.tasks import TASKS
from trimaran.judging.stats import estimate, percentile

_SHAPE = re.compile(r"\d+x\d+")
_SHAPE_AND_SHARE = re.compile(r"(?P<shape>\d+x\d+) p(?P<share>\d+(\.\d+)?)")
NOT_MEASURED = "not measured"


class ScenarioGate(Frozen):
    """A limit on one figure of a scenario; whether it is a floor or a ceiling is the figure's own nature."""

    scenario: str
    figure: str
    limit: float
    at: At | None = None
    wire: Wire | None = None


class RegressionRule(Frozen):
    """No number of these kinds may be worse than in the baseline by more than `tolerance` times."""

    baseline: str
    tolerance: float = Field(default=1.0, ge=1.0)
    kinds: tuple[ChangeKind, ...] = ("verdict", "speed", "scenario", "quality", "memory", "size")
    unlike: bool = False


class GatesFile(Frozen):
    """`judge_by = "bound"` holds the end of the interval that speaks against you to the limit, `"median"` the middle.

    `candidate` is a name, `chosen`, or `servable` for every one that keeps its own gates.
    """

    candidate: str = "chosen"
    judge_by: Literal["bound", "median"] = "bound"
    speedup: dict[str, float] = {}
    latency_ms: dict[str, float] = {}
    quality: dict[str, float] = {}
    memory_mb: float | None = None
    size_mb: float | None = None
    scenario: tuple[ScenarioGate, ...] = ()
    regression: RegressionRule | None = None


class GateRow(NamedTuple):
    """One limit, and whether the report keeps it. What was not measured keeps to no limit."""

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
        found = GatesFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except SchemaError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = f" Known: {', '.join(GatesFile.model_fields)}." if first["type"] == "extra_forbidden" else ""
        raise UsageError(f"{path}: {where}: {first['msg']}.{known}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    _refuse_unknown(found, path)
    return found


def hold(report: Report, gates: GatesFile, *, folder: Path) -> tuple[GateRow, ...]:
    """Every gate against every gated candidate; `folder` is where a baseline's relative path starts.

    Raises UsageError when the file gates nothing or names a candidate that the report does not have.
    """
    rows = tuple(
        found
        for row in _gated(report, gates)
        for check in (_speedup_rows, _latency_rows, _quality_rows, _footprint_rows, _scenario_rows)
        for found in check(report, gates, row)
    )
    if gates.regression:
        rows += tuple(_regression_rows(report, gates, gates.regression, folder))
    if not rows:
        raise UsageError("The gates file has no gate.", hint="Give at least one, such as [speedup] with 1x128 = 1.5.")
    return rows


def _gated(report: Report, gates: GatesFile) -> tuple[CandidateRow, ...]:
    if gates.candidate == "servable":
        return tuple(row for row in report.candidates if row.verdict in ("chosen", "passed"))
    name = report.verdict.chosen if gates.candidate == "chosen" else gates.candidate
    if name is None:
        return (report.reference.model_copy(update={"name": "nothing chosen"}),)
    found = tuple(row for row in (*report.candidates, *report.baselines) if row.name == name)
    if not found:
        known = ", ".join(row.name for row in report.candidates)
        raise UsageError(f"The report has no candidate {name!r} to gate.", hint=f"It has: {known}.")
    return found


def _speedup_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    ratios = {
        str(shape): ratio
        for shape, ratio in speedups(report.measurements, row.name, reference=report.reference.name).items()
    }
    for shape, limit in gates.speedup.items():
        ratio = ratios.get(shape)
        value = ratio and (ratio.low if gates.judge_by == "bound" else ratio.median)
        said = f"{interval(ratio)}× (median {ratio.median:.2f})" if ratio else NOT_MEASURED
        yield GateRow(f"speed-up at {shape}", row.name, said, f"≥ {limit:g}×", value is not None and value >= limit)


def _latency_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    measured = {str(found.shape): found for found in report.measurements if found.candidate == row.name}
    for key, budget_ms in gates.latency_ms.items():
        match = _SHAPE_AND_SHARE.fullmatch(key)
        assert match is not None, "read_gates refuses other keys"
        found, share = measured.get(match["shape"]), float(match["share"])
        said, holds = NOT_MEASURED, False
        if found and found.samples_ns:
            value = percentile(found.samples_ns, share) / 1e6
            high = estimate(tuple(map(tuple, found.samples_by_round)), share)[1] / 1e6
            said = f"{value:.3g} ms (up to {high:.3g})"
            holds = (max(high, value) if gates.judge_by == "bound" else value) <= budget_ms
        yield GateRow(f"latency at {key}", row.name, said, f"≤ {budget_ms:g} ms", holds)


def _quality_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    metrics = row.quality.metrics if row.quality else {}
    for metric, limit in gates.quality.items():
        value, comparison = metrics.get(metric), _comparison(metric)
        assert comparison is not None, "read_gates refuses other keys"
        holds = value is not None and (value <= limit if comparison == "<=" else value >= limit)
        said = NOT_MEASURED if value is None else number(value, digits=6)
        yield GateRow(metric_name(metric), row.name, said, f"{SIGNS[comparison]} {number(limit, digits=6)}", holds)


def _footprint_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    for name, limit_mb, size_bytes in (
        ("peak memory", gates.memory_mb, row.peak_memory_bytes),
        ("size on disk", gates.size_mb, row.size_bytes),
    ):
        if limit_mb is not None:
            said = f"{size_bytes / 1e6:.4g} MB" if size_bytes else NOT_MEASURED
            holds = size_bytes is not None and 0 < size_bytes <= limit_mb * 1e6
            yield GateRow(name, row.name, said, f"≤ {limit_mb:g} MB", holds)


def _scenario_rows(report: Report, gates: GatesFile, row: CandidateRow) -> Iterator[GateRow]:
    for gate in gates.scenario:
        found = [
            result
            for result in report.scenarios
            if result.candidate == row.name
            and result.scenario == gate.scenario
            and gate.at in (None, result.at)
            and gate.wire in (None, result.wire)
        ]
        if not found:
            yield GateRow(f"{gate.scenario}: {gate.figure}", row.name, NOT_MEASURED, f"{gate.limit:g}", False)
        for result in found:
            name = f"{scenario_words(result)}: {gate.figure}"
            figure = next((figure for figure in figures_of(result) if figure.name == gate.figure), None)
            if figure is None or result.cut:
                yield GateRow(name, row.name, result.cut or NOT_MEASURED, f"{gate.limit:g}", False)
                continue
            against = figure.high if figure.better == "lower" else figure.low
            value = against if gates.judge_by == "bound" and against is not None else figure.value
            holds = value <= gate.limit if figure.better == "lower" else value >= gate.limit
            sign = SIGNS["<=" if figure.better == "lower" else ">="]
            said = f"{number(figure.value, digits=4)} {figure.unit}"
            if value != figure.value:
                said += f" ({'up' if figure.better == 'lower' else 'down'} to {number(value, digits=4)})"
            yield GateRow(name, row.name, said, f"{sign} {gate.limit:g} {figure.unit}", holds)


def _regression_rows(report: Report, gates: GatesFile, rule: RegressionRule, folder: Path) -> Iterator[GateRow]:
    baseline = read_report(folder / rule.baseline)
    found = compare(baseline, report, allow_unlike=rule.unlike)
    names = {row.name for row in _gated(report, gates)}
    if gates.candidate == "chosen" and baseline.verdict.chosen:
        names.add(baseline.verdict.chosen)
    mine = [change for change in found.changes if change.candidate in names and change.kind in rule.kinds]
    worse = [change for change in mine if change.outcome == "worse" and _times_worse(change) > rule.tolerance]
    limit = f"no worse than {rule.baseline}" + (f" × {rule.tolerance:g}" if rule.tolerance > 1 else "")
    for change in worse:
        name, what, old, new, words = comparison_cells(change)
        yield GateRow(f"regression: {what}", name, f"{old} → {new}, {words}", limit, False)
    if not worse:
        what = f"{len(mine)} numbers compared" if mine else "no number in common"
        yield GateRow("regression", ", ".join(sorted(names)), what, limit, bool(mine))


def _times_worse(change: ReportChange) -> float:
    """The kindest reading: the end of the interval that is nearest to no change."""
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
        (
            gate.comparison
            for task in TASKS.values()
            for gates in task.gates.values()
            for gate in gates
            if gate.metric == metric
        ),
        None,
    )


def _refuse_unknown(found: GatesFile, path: Path) -> None:
    problems: tuple[tuple[str, tuple[str, ...], Callable[[str], object], str], ...] = (
        ("speedup", tuple(found.speedup), _SHAPE.fullmatch, "Write BATCHxTOKENS, such as 1x128."),
        ("latency_ms", tuple(found.latency_ms), _SHAPE_AND_SHARE.fullmatch, 'Write such as "1x128 p99".'),
        ("quality", tuple(found.quality), _comparison, f"Known: {', '.join(METRICS)}."),
        (
            "scenario",
            tuple(g.scenario for g in found.scenario),
            READINGS.__contains__,
            f"Known: {', '.join(READINGS)}.",
        ),
    )
    for section, keys, known, hint in problems:
        for key in keys:
            if not known(key):
                raise UsageError(f"{path}: [{section}] does not know {key!r}.", hint=hint)
