"""A report as GitHub-flavoured Markdown that fits a pull-request comment."""

from __future__ import annotations

import shlex

from trimaran.benchmarks.figures import shapes_of, speedups, unsteady
from trimaran.benchmarks.report import CandidateRow, Report
from trimaran.benchmarks.stats import CONFIDENCE, MARGIN
from trimaran.benchmarks.wording import (
    ROWS_WORDS,
    VERDICT_MARKS,
    count,
    environment_words,
    gates_words,
    gigabytes,
    interval,
    megabytes,
    metric_name,
    number,
    times,
)
from trimaran.tasks import task


def render_markdown(report: Report) -> str:
    shapes = shapes_of(report.measurements)
    headline = task(report.task).headline
    heads = [
        "candidate",
        "verdict",
        *(str(shape) for shape in shapes),
        metric_name(headline),
        "batch change",
        "size",
        "peak memory",
    ]
    lines = [
        f"## {_text(report.model)}: {_text(report.verdict.chosen or 'nothing to deploy')}",
        "",
        f"**{_text(report.verdict.speed)}** {_text(report.verdict.truth)}",
        "",
        f"Speed-up over eager PyTorch with its {CONFIDENCE:.0%} interval, at batch x tokens:",
        "",
        _line(heads),
        _line(["---", "---", *["---:"] * (len(heads) - 2)]),
        *(_line(_cells(report, row)) for row in (report.reference, *report.candidates)),
        "",
    ]
    unserved = [row for row in report.candidates if row.verdict in ("rejected", "failed")]
    if unserved:
        lines += ["**Not served, and why**", ""]
        lines += [f"- `{_code(row.name)}` {row.verdict}: {_text(row.reason)}" for row in unserved]
        lines += [""]
    return "\n".join(lines + _details(report)) + "\n"


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
        number(metrics.get(task(report.task).headline)),
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
        f"- {_text(machine.cpu)}, {count(machine.cores, 'core')}, {gigabytes(machine.memory_bytes)}; "
        f"{_text(machine.system)}; Python {_text(machine.python)}; "
        f"{count(report.threads, 'thread')} for every candidate.",
        f"- trimaran {_text(report.trimaran)}, {_text(versions)}.",
        f"- Objective {report.objective}; level {report.level}: {_text(gates_words(report.gates))}.",
        *served,
        *restricted,
        *(f"- {_text(note)}" for note in (*report.notes, unsteady(report.measurements)) if note),
        f"- A difference below {MARGIN:.0%}, or one that the interval does not separate, counts as none.",
        "",
        "```",
        shlex.join(report.command).replace("```", "'''"),
        "```",
        "",
        "</details>",
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    for mark in ("\\", "|", "`", "*", "_", "[", "<", ">"):
        text = text.replace(mark, {"<": "&lt;", ">": "&gt;"}.get(mark, "\\" + mark))
    return " ".join(text.split())


def _code(text: str) -> str:
    return " ".join(text.replace("`", "'").replace("|", "\\|").split())
