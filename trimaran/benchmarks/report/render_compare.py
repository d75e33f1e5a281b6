"""A comparison of reports for people: one sentence, then what got better or worse, then what could not be told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trimaran.benchmarks.report.compare import ReportChange, ReportComparison
from trimaran.benchmarks.report.markdown import markdown_line, markdown_text
from trimaran.benchmarks.report.wording import count, interval, listed, metric_name, number, times

if TYPE_CHECKING:
    from rich.table import Table

HEADS = ("candidate", "what", "old", "new", "change")
_WORDS = {
    "speed": {"better": "faster", "worse": "slower"},
    "size": {"better": "smaller", "worse": "larger"},
    "memory": {"better": "smaller", "worse": "larger"},
}
_STYLES = {"better": "green", "worse": "bold red", "same": "dim"}


def comparison_sentence(found: ReportComparison) -> str:
    """`2 got slower and 1 got faster; 14 others show no difference.`"""
    counts = Counter(_word(change) for change in found.changes if change.outcome != "same")
    same = len(found.of("same"))
    parts = listed([f"{amount} got {word}" for word, amount in sorted(counts.items())]) if counts else "Nothing changed"
    return f"{parts}; {count(same, 'number')} without a difference."


def shown(found: ReportComparison, *, everything: bool) -> tuple[ReportChange, ...]:
    """Worse first, then better, then, when asked, the rest."""
    return (*found.of("worse"), *found.of("better"), *(found.of("same") if everything else ()))


def remarks(found: ReportComparison) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    old, new = found.old.verdict.chosen, found.new.verdict.chosen
    return (
        *(f"Unlike: {difference}." for difference in found.unlike),
        *([f"The choice changed from {old or 'nothing'} to {new or 'nothing'}."] if old != new else []),
        *([f"Only in the old report: {', '.join(found.gone)}."] if found.gone else []),
        *([f"Only in the new report: {', '.join(found.added)}."] if found.added else []),
        *(f"{c.candidate} at {c.where}: {c.note}." for c in found.of("same") if c.kind == "speed" and c.note),
    )


def comparison_cells(change: ReportChange) -> list[str]:
    what = metric_name(change.where) if change.kind == "quality" else change.where
    words = _word(change)
    if change.ratio:
        words += f" {times(change.ratio)} ({interval(change.ratio)})"
    if change.note and change.kind == "verdict":
        words += f": {change.note}"
    return [change.candidate, what, _value(change.old, change.unit), _value(change.new, change.unit), words]


def comparison_table(found: ReportComparison, *, everything: bool = False) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for head in HEADS:
        table.add_column(head, overflow="fold")
    for change in shown(found, everything=everything):
        table.add_row(*(Text(cell) for cell in comparison_cells(change)), style=_STYLES[change.outcome])
    return table


def comparison_markdown(found: Sequence[ReportComparison], *, everything: bool = False) -> str:
    lines: list[str] = []
    for one in found:
        lines += [f"## {markdown_text(one.new.model)}: {markdown_text(comparison_sentence(one))}", ""]
        lines += [f"{one.old.created} against {one.new.created}. A change counts where the intervals separate.", ""]
        if rows := shown(one, everything=everything):
            lines += [markdown_line(HEADS), markdown_line(["---", "---", "---:", "---:", "---"])]
            lines += [markdown_line([markdown_text(cell) for cell in comparison_cells(row)]) for row in rows]
            lines += [""]
        lines += [f"- {markdown_text(remark)}" for remark in remarks(one)]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def comparison_json(found: ReportComparison) -> dict[str, Any]:
    return {
        "old": found.old.created,
        "new": found.new.created,
        "sentence": comparison_sentence(found),
        "unlike": [difference._asdict() for difference in found.unlike],
        "changes": [_change_json(change) for change in shown(found, everything=True)],
        "gone": list(found.gone),
        "added": list(found.added),
    }


def _change_json(change: ReportChange) -> dict[str, Any]:
    plain = {**change._asdict(), "ratio": change.ratio and change.ratio._asdict()}
    return {key: json.loads(json.dumps(value).replace("NaN", "null")) for key, value in plain.items()}


def _word(change: ReportChange) -> str:
    words: dict[str, str] = _WORDS.get(change.kind, {})
    return "no difference" if change.outcome == "same" else words.get(change.outcome, change.outcome)


def _value(value: float | str, unit: str) -> str:
    return f"{number(value, digits=4)} {unit}".rstrip()
