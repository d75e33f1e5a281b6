"""Gates as a table, for a terminal and for Markdown: the limit, what was observed, whether it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimaran.benchmarks.report.gates import GateRow
from trimaran.benchmarks.report.markdown import markdown_table, markdown_text
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.wording import count

if TYPE_CHECKING:
    from rich.table import Table

_HEADS = ("", "gate", "candidate", "observed", "wanted")


def gates_table(rows: Sequence[GateRow]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for head in _HEADS:
        table.add_column(head, overflow="fold")
    for row in _failed_first(rows):
        table.add_row(*(Text(cell) for cell in _cells(row)), style="" if row.holds else "bold red")
    return table


def gates_markdown(report: Report, rows: Sequence[GateRow]) -> str:
    failed = sum(not row.holds for row in rows)
    verdict = f"{failed} of {count(len(rows), 'gate')} failed" if failed else f"all {count(len(rows), 'gate')} hold"
    cells = [[markdown_text(cell) for cell in _cells(row)] for row in _failed_first(rows)]
    return "\n".join([f"### {markdown_text(report.model)}: {verdict}", "", *markdown_table(_HEADS, cells)]) + "\n"


def _failed_first(rows: Sequence[GateRow]) -> list[GateRow]:
    return sorted(rows, key=lambda row: row.holds)


def _cells(row: GateRow) -> list[str]:
    return ["✓" if row.holds else "✕", row.gate, row.candidate, row.observed, row.limit]
