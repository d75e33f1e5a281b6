"""A comparison of reports for people: one sentence, then what got better or worse, then the remarks."""

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
_TWO_MODELS = (
    "Two models: each one's fidelity is that to its own eager PyTorch, and speeds are by the clock. Metrics to the "
    "teacher are in the report of a student that was deployed with --teacher."
)
_STYLES = {"better": "green", "worse": "bold red", "same": "dim"}


def comparison_sentence(comparison: ReportComparison) -> str:
    """`2 got slower and 1 got faster; 14 others show no difference.`"""
    counts = Counter(_word(change) for change in comparison.changes if change.outcome != "same")
    same = len(comparison.of("same"))
    parts = listed([f"{amount} got {word}" for word, amount in sorted(counts.items())]) if counts else "Nothing changed"
    return f"{parts}; {count(same, 'number')} without a difference."


def shown(comparison: ReportComparison, *, everything: bool) -> tuple[ReportChange, ...]:
    """Worse first, then better, then the rest, when asked or where two models stand side by side."""
    return (
        *comparison.of("worse"),
        *comparison.of("better"),
        *(comparison.of("same") if everything or comparison.two_models else ()),
    )


def remarks(comparison: ReportComparison) -> tuple[str, ...]:
    """What a reader must know beside the numbers."""
    old, new = comparison.old.verdict.chosen, comparison.new.verdict.chosen
    return (
        *(f"Unlike: {difference}." for difference in comparison.unlike),
        *([_TWO_MODELS] if comparison.two_models else []),
        comparison.sides.words(),
        *([f"The choice changed from {old or 'nothing'} to {new or 'nothing'}."] if old != new else []),
        *([f"Only in the old report: {', '.join(comparison.gone)}."] if comparison.gone else []),
        *([f"Only in the new report: {', '.join(comparison.added)}."] if comparison.added else []),
        *(f"{c.candidate} at {c.where}: {c.note}." for c in comparison.of("same") if c.kind == "speed" and c.note),
    )


def comparison_cells(change: ReportChange) -> list[str]:
    what = metric_name(change.where) if change.kind == "quality" else change.where
    words = _word(change)
    if change.ratio:
        words += f" {times(change.ratio)} ({interval(change.ratio)})"
    if change.note and change.kind == "verdict":
        words += f": {change.note}"
    return [change.candidate, what, _value(change.old, change.unit), _value(change.new, change.unit), words]


def comparison_table(comparison: ReportComparison, *, everything: bool = False) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for head in HEADS:
        table.add_column(head, overflow="fold")
    for change in shown(comparison, everything=everything):
        table.add_row(*(Text(cell) for cell in comparison_cells(change)), style=_STYLES[change.outcome])
    return table


def comparison_markdown(comparisons: Sequence[ReportComparison], *, everything: bool = False) -> str:
    lines: list[str] = []
    for comparison in comparisons:
        lines += [f"## {markdown_text(comparison.new.model)}: {markdown_text(comparison_sentence(comparison))}", ""]
        lines += [
            f"{comparison.old.created} against {comparison.new.created}. A change counts where the intervals separate.",
            "",
        ]
        if rows := shown(comparison, everything=everything):
            lines += [markdown_line(HEADS), markdown_line(["---", "---", "---:", "---:", "---"])]
            lines += [markdown_line([markdown_text(cell) for cell in comparison_cells(row)]) for row in rows]
            lines += [""]
        lines += [f"- {markdown_text(remark)}" for remark in remarks(comparison)]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def comparison_json(comparison: ReportComparison) -> dict[str, Any]:
    return {
        "old": comparison.old.created,
        "new": comparison.new.created,
        "sentence": comparison_sentence(comparison),
        "runs": {"old": len(comparison.sides.old), "new": len(comparison.sides.new)},
        "unlike": [difference._asdict() for difference in comparison.unlike],
        "changes": [_change_json(change) for change in shown(comparison, everything=True)],
        "gone": list(comparison.gone),
        "added": list(comparison.added),
    }


def _change_json(change: ReportChange) -> dict[str, Any]:
    plain = {**change._asdict(), "ratio": change.ratio and change.ratio._asdict()}
    return {key: json.loads(json.dumps(value).replace("NaN", "null")) for key, value in plain.items()}


def _word(change: ReportChange) -> str:
    words: dict[str, str] = _WORDS.get(change.kind, {})
    return "no difference" if change.outcome == "same" else words.get(change.outcome, change.outcome)


def _value(value: float | str, unit: str) -> str:
    return f"{number(value, digits=4)} {unit}".rstrip()
