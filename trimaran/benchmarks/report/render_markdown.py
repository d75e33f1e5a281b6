"""A report as GitHub-flavoured Markdown that fits a pull-request comment."""

from __future__ import annotations

import shlex

from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.figures import largest, shapes_of, speedups_of
from trimaran.benchmarks.report.kinds import kind_limits_words, kinds_table
from trimaran.benchmarks.report.limits import above_words, shares
from trimaran.benchmarks.report.markdown import markdown_code, markdown_table, markdown_text
from trimaran.benchmarks.report.report import UNSERVED, CandidateRow, Report
from trimaran.benchmarks.report.wording import (
    INTERVAL_WORDS,
    ROWS_WORDS,
    VERDICT_MARKS,
    count,
    environment_words,
    figure_words,
    gates_words,
    gigabytes,
    megabytes,
    metric_name,
    metric_words,
    number,
    ratio_words,
)
from trimaran.benchmarks.scenarios.finals import READINGS, final, uneven
from trimaran.core.tasks import task
from trimaran.judging.stats import MARGIN

# GitHub takes 65,536 characters as one comment; a CI adds a line or two of its own.
LIMIT_CHARACTERS = 60_000
_CUT = "… cut to fit a comment; the rest is in report.html."


def render_markdown(report: Report) -> str:
    """Never longer than a pull-request comment may be: the verdict and the table come first, the last is cut first."""
    text = ""
    for section in (_verdict(report), _reasons(report), _kinds(report), _scenarios(report), _details(report)):
        added = "\n".join([*section, ""]) + "\n" if section else ""
        if len(text) + len(added) + len(_CUT) > LIMIT_CHARACTERS:
            room = LIMIT_CHARACTERS - len(text) - len(_CUT) - 4
            whole_lines = added[: max(0, room)].rpartition("\n")[0] if "<details>" not in added else ""
            return f"{text}{whole_lines}\n\n{_CUT}\n"
        text += added
    return text.rstrip("\n") + "\n"


def _verdict(report: Report) -> list[str]:
    shapes = map(str, shapes_of(report.measurements))
    headline = metric_name(task(report.task).headline)
    heads = ["candidate", "verdict", *shapes, headline, "batch change", "size", "peak memory"]
    return [
        f"## {markdown_text(report.model)}: {markdown_text(report.verdict.chosen or 'nothing to deploy')}",
        "",
        f"**{markdown_text(report.verdict.speed)}** {markdown_text(report.verdict.truth)}",
        *(["", markdown_text(report.verdict.proof)] if report.verdict.proof else []),
        "",
        *([f"Speed-up over eager PyTorch at batch x tokens: {INTERVAL_WORDS}.", ""] if report.measurements else []),
        *markdown_table(heads, [_cells(report, row) for row in report.rows], left=2),
    ]


def _cells(report: Report, row: CandidateRow) -> list[str]:
    ratios = speedups_of(report, row.name)
    is_reference = row.name == report.reference.name
    return [
        f"`{markdown_code(row.name)}`",
        f"{VERDICT_MARKS[row.verdict]} {row.verdict}",
        *("1" if is_reference else ratio_words(ratios.get(shape)) for shape in shapes_of(report.measurements)),
        metric_words(row.quality, task(report.task).headline),
        number(row.quality.metrics.get("batch_change") if row.quality else None),
        megabytes(row.size_bytes),
        megabytes(row.peak_memory_bytes),
    ]


def _reasons(report: Report) -> list[str]:
    unserved = [row for row in report.candidates if row.verdict in UNSERVED]
    if not unserved:
        return []
    reasons = [f"- `{markdown_code(row.name)}` {row.verdict}: {markdown_text(row.reason)}" for row in unserved]
    return ["**Not served, and why**", "", *reasons]


def _kinds(report: Report) -> list[str]:
    """Of the chosen candidate, every kind of text."""
    chosen = next((row for row in report.candidates if row.verdict == "chosen"), None)
    table = kinds_table(chosen) if chosen else None
    if table is None:
        return []
    heads, rows = table
    cells = [[markdown_text(cell) for cell in row] for row in rows]
    note = f"As measured on each kind; these are no bounds. {kind_limits_words(report.gates)}".rstrip()
    return [
        "<details><summary>Every kind of text</summary>",
        "",
        markdown_text(note),
        "",
        *markdown_table([markdown_text(head) for head in heads], cells, left=1),
        "",
        "</details>",
    ]


def _scenarios(report: Report) -> list[str]:
    """The final number of every scenario; one that was cut says why and keeps what it found."""
    order = list(READINGS)
    rows = [
        [
            markdown_text(READINGS[result.scenario].title),
            f"`{markdown_code(result.candidate)}`",
            markdown_text(" ".join(filter(None, (result.at, result.wire)))),
            markdown_text(figure_words(figure)) if (figure := final(result)) else "–",
            f"cut: {markdown_text(result.cut)}" if result.cut else "",
        ]
        for result in sorted(report.scenarios, key=lambda result: order.index(result.scenario))
    ]
    if not rows:
        return []
    table = markdown_table(["scenario", "candidate", "level", "final number", "remark"], rows)
    return ["<details><summary>Scenarios</summary>", "", *table, "", "</details>"]


def _limits(report: Report) -> list[str]:
    """The share of the measured ceiling that each candidate reaches at the largest shape."""
    reached = shares(report)
    if not reached:
        return []
    shape = largest([share.shape for share in reached])
    words = ", ".join(
        f"`{markdown_code(candidate_share.candidate)}` {candidate_share.share:.0%}"
        for candidate_share in reached
        if candidate_share.shape == shape
    )
    sentence = f"Share of the measured ceiling (the model's bare matrix products) at {shape}: {words}."
    return [" ".join(filter(None, (sentence, markdown_text(above_words(report)))))]


def _details(report: Report) -> list[str]:
    machine = report.environment
    versions = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    chosen = next((row for row in report.candidates if row.verdict == "chosen"), None)
    facts = [
        f"{markdown_text(machine.cpu)}, {count(machine.cores, 'core')}, {gigabytes(machine.memory_bytes)}; "
        f"{markdown_text(machine.system)}; Python {markdown_text(machine.python)}; "
        f"{count(report.threads, 'thread')} for every candidate.",
        f"trimaran {markdown_text(report.trimaran)}, {markdown_text(versions)}.",
        f"Objective {report.objective}; level {report.level}: {markdown_text(gates_words(report.gates))}.",
        *(f"`{markdown_code(row.name)}` is {markdown_text(row.runs_as)}." for row in report.rows if row.runs_as),
        *([f"Served with {ROWS_WORDS[chosen.quality.rows]}."] if chosen and chosen.quality else []),
        *_limits(report),
        *(
            f"`{markdown_code(row.name)}` runs with `{markdown_code(environment_words(row.execution_environment))}`."
            for row in report.candidates
            if row.execution_environment
        ),
        *map(markdown_text, filter(None, (*report.notes, unsteady(report.measurements), uneven(report.scenarios)))),
        f"A difference below {MARGIN:.0%}, or one that the interval does not separate, counts as none.",
    ]
    return [
        "<details><summary>Machine, gates and the command that reproduces this</summary>",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        "```",
        shlex.join(report.command).replace("```", "'''"),
        "```",
        "",
        "</details>",
    ]
