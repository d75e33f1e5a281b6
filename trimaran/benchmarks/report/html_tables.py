"""The tables of the HTML report; each scrolls inside its own frame, so that a phone's page never does."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trimaran.benchmarks.report.figures import shapes_of, speedups
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.report.wording import (
    VERDICT_MARKS,
    interval,
    limit_words,
    megabytes,
    metric_name,
    number,
    times,
)
from trimaran.judging.judgement import WIDEST_FIRST, Quality


def scrolling(content: str, what: str) -> str:
    """Focusable, so that it also scrolls from the keyboard."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(what)}">{content}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table>{told}<thead><tr>{head}</tr></thead><tbody class="plain">{body}</tbody></table>'


def candidates_table(report: Report) -> str:
    shapes = shapes_of(report.measurements)
    heads = [
        _head("candidate"),
        _head("verdict", left=True),
        *(_head(str(shape), "speed-up") for shape in shapes),
        *(_head(metric_name(gate.metric), limit_words(gate)) for gate in report.gates),
        _head("size"),
        _head("memory", "peak"),
    ]
    bodies = "".join(
        _candidate(report, row, len(heads)) for row in (report.reference, *report.baselines, *report.candidates)
    )
    return scrolling(f"<table><thead><tr>{''.join(heads)}</tr></thead>{bodies}</table>", "candidates")


def _candidate(report: Report, row: CandidateRow, columns: int) -> str:
    ratios = speedups(report.measurements, row.name, reference=report.reference.name)
    is_reference = row.name == report.reference.name
    runs_as = row.runs_as or f"{row.backend}, {row.precision}"
    speeds = [
        "<td>1×</td>"
        if is_reference
        else f"<td>{times(ratio)}<small>{interval(ratio)}</small></td>"
        if (ratio := ratios.get(shape))
        else "<td>–</td>"
        for shape in shapes_of(report.measurements)
    ]
    cells = [
        f'<th scope="row">{escape(row.name)}<small>{escape(runs_as)}</small></th>',
        f'<td class="left"><span class="tag {row.verdict}">{VERDICT_MARKS[row.verdict]} {row.verdict}</span></td>',
        *speeds,
        *_quality_cells(report, row),
        f"<td>{megabytes(row.size_bytes)}</td>",
        f"<td>{megabytes(row.peak_memory_bytes)}</td>",
    ]
    return (
        f'<tbody class="{row.verdict}"><tr>{"".join(cells)}</tr>'
        f'<tr class="reason"><td colspan="{columns}"><span>{escape(row.reason)}</span></td></tr></tbody>'
    )


def _quality_cells(report: Report, row: CandidateRow) -> list[str]:
    checks = {check.name: check for check in row.quality.checks} if row.quality else {}
    served = f"<small>{escape(row.quality.rows)}</small>" if row.quality else ""
    cells = []
    for gate in report.gates:
        check = checks.get(gate.metric)
        small = served if gate.metric == "batch_change" else _interval(row.quality, gate.metric)
        if check is None:
            cells.append("<td>–</td>")
        elif check.holds:
            cells.append(f"<td>{escape(number(check.observed))}{small}</td>")
        else:
            cells.append(f'<td class="broken">✕ {escape(number(check.observed))}{small}</td>')
    return cells


def _interval(quality: Quality | None, metric: str) -> str:
    low, high = quality.intervals.get(metric, (None, None)) if quality else (None, None)
    return f"<small>{number(low)}–{number(high)}</small>" if low is not None else ""


def invariance_table(report: Report) -> str:
    rows = [
        [
            row.name,
            *(number(row.quality.changes.get(policy)) for policy in WIDEST_FIRST),
            row.quality.rows,
            str(row.quality.n_batched),
        ]
        for row in report.candidates
        if row.quality
    ]
    return scrolling(
        table(["candidate", "padded together", "equal length", "alone", "served", "texts"], rows), "batch invariance"
    )


def _head(name: str, detail: str = "", *, left: bool = False) -> str:
    small = f"<small>{escape(detail)}</small>" if detail else ""
    return f'<th scope="col"{" class=left" if left else ""}>{escape(name)}{small}</th>'
