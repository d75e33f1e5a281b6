"""A report as GitHub-flavoured Markdown that fits a pull-request comment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.figures import shapes_of, speedups
from trimaran.benchmarks.report.limits import shares
from trimaran.benchmarks.report.report import UNSERVED, CandidateRow, Report
from trimaran.benchmarks.report.wording import (
    ROWS_WORDS,
    VERDICT_MARKS,
    count,
    environment_words,
    figure_words,
    gates_words,
    gigabytes,
    interval,
    megabytes,
    metric_name,
    metric_words,
    number,
    times,
)
from trimaran.benchmarks.scenarios.finals import READINGS, final, uneven
from trimaran.core.tasks import task
from trimaran.judging.stats import CONFIDENCE, MARGIN

# What GitHub takes as one comment is 65,536 characters; a CI adds a line or two of its own.
LIMIT_CHARACTERS = 60_000
_CUT = "… cut to fit a comment; the rest is in report.html."


def render_markdown(report: Report) -> str:
    """Never longer than a pull-request comment may be: the verdict and the table come first, the last is cut first."""
    text = ""
    for section in (_verdict(report), _reasons(report), _scenarios(report), _details(report)):
        added = "\n".join([*section, ""]) + "\n" if section else ""
        if len(text) + len(added) + len(_CUT) > LIMIT_CHARACTERS:
            room = LIMIT_CHARACTERS - len(text) - len(_CUT) - 4
            whole_lines = added[: max(0, room)].rpartition("\n")[0] if "<details>" not in added else ""
            return f"{text}{whole_lines}\n\n{_CUT}\n"
        text += added
    return text.rstrip("\n") + "\n"


def _verdict(report: Report) -> list[str]:
    shapes = shapes_of(report.measurements)
    heads = [
        "candidate",
        "verdict",
        *(str(shape) for shape in shapes),
        metric_name(task(report.task).headline),
        "batch change",
        "size",
        "peak memory",
    ]
    return [
        f"## {markdown_text(report.model)}: {markdown_text(report.verdict.chosen or 'nothing to deploy')}",
        "",
        f"**{markdown_text(report.verdict.speed)}** {markdown_text(report.verdict.truth)}",
        "",
        f"Speed-up over eager PyTorch with its {CONFIDENCE:.0%} interval, at batch x tokens:",
        "",
        markdown_line(heads),
        markdown_line(["---", "---", *["---:"] * (len(heads) - 2)]),
        *(markdown_line(_cells(report, row)) for row in (report.reference, *report.baselines, *report.candidates)),
    ]


def _reasons(report: Report) -> list[str]:
    unserved = [row for row in report.candidates if row.verdict in UNSERVED]
    if not unserved:
        return []
    reasons = [f"- `{_code(row.name)}` {row.verdict}: {markdown_text(row.reason)}" for row in unserved]
    return ["**Not served, and why**", "", *reasons]


def _scenarios(report: Report) -> list[str]:
    """The final number of every scenario; a cut one is marked and keeps what it found."""
    rows = [
        [
            markdown_text(READINGS[result.scenario].title),
            f"`{_code(result.candidate)}`",
            markdown_text(" ".join(filter(None, (result.at, result.wire)))),
            markdown_text(figure_words(found)) if (found := final(result)) else "–",
            f"cut: {markdown_text(result.cut)}" if result.cut else "",
        ]
        for result in sorted(report.scenarios, key=lambda one: list(READINGS).index(one.scenario))
    ]
    if not rows:
        return []
    heads = ["scenario", "candidate", "level", "final number", "remark"]
    return [
        "<details><summary>Scenarios</summary>",
        "",
        markdown_line(heads),
        markdown_line(["---"] * len(heads)),
        *map(markdown_line, rows),
        "",
        "</details>",
    ]


def _limits(report: Report) -> list[str]:
    """Of the measured ceiling at the largest shape, the share of each."""
    found = shares(report)
    if not found:
        return []
    largest = max((one.shape for one in found), key=lambda shape: shape.batch * shape.sequence)
    said = ", ".join(f"`{_code(one.candidate)}` {one.share:.0%}" for one in found if one.shape == largest)
    return [f"- Share of the measured ceiling (the model's bare matrix products) at {largest}: {said}."]


def _cells(report: Report, row: CandidateRow) -> list[str]:
    ratios = speedups(report.measurements, row.name, reference=report.reference.name)
    metrics = row.quality.metrics if row.quality else {}
    is_reference = row.name == report.reference.name
    speeds = [
        "1" if is_reference else f"{times(ratio)} ({interval(ratio)})" if (ratio := ratios.get(shape)) else "–"
        for shape in shapes_of(report.measurements)
    ]
    return [
        f"`{_code(row.name)}`",
        f"{VERDICT_MARKS[row.verdict]} {row.verdict}",
        *speeds,
        metric_words(row.quality, task(report.task).headline),
        number(metrics.get("batch_change")),
        megabytes(row.size_bytes),
        megabytes(row.peak_memory_bytes),
    ]


def _details(report: Report) -> list[str]:
    machine = report.environment
    versions = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    chosen = next((row for row in report.candidates if row.verdict == "chosen"), None)
    served = [f"- Served with {ROWS_WORDS[chosen.quality.rows]}."] if chosen and chosen.quality else []
    restricted = [
        f"- `{_code(row.name)}` runs with `{_code(environment_words(row.execution_environment))}`."
        for row in report.candidates
        if row.execution_environment
    ]
    return [
        "<details><summary>Machine, gates and the command that reproduces this</summary>",
        "",
        f"- {markdown_text(machine.cpu)}, {count(machine.cores, 'core')}, {gigabytes(machine.memory_bytes)}; "
        f"{markdown_text(machine.system)}; Python {markdown_text(machine.python)}; "
        f"{count(report.threads, 'thread')} for every candidate.",
        f"- trimaran {markdown_text(report.trimaran)}, {markdown_text(versions)}.",
        f"- Objective {report.objective}; level {report.level}: {markdown_text(gates_words(report.gates))}.",
        *(
            f"- `{_code(row.name)}` is {markdown_text(row.runs_as)}."
            for row in (report.reference, *report.baselines)
            if row.runs_as
        ),
        *served,
        *_limits(report),
        *restricted,
        *(
            f"- {markdown_text(note)}"
            for note in (*report.notes, unsteady(report.measurements), uneven(report.scenarios))
            if note
        ),
        f"- A difference below {MARGIN:.0%}, or one that the interval does not separate, counts as none.",
        "",
        "```",
        shlex.join(report.command).replace("```", "'''"),
        "```",
        "",
        "</details>",
    ]


def markdown_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_text(text: str) -> str:
    for mark in ("\\", "|", "`", "*", "_", "[", "<", ">"):
        text = text.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, "\\" + mark))
    return " ".join(text.split())


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").replace("|", "\\|").split())
