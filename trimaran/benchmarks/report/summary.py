"""The verdict for a terminal, and for scripts as the `candidates` of `trimaran deploy --json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.figures import shapes_of, speedups_of
from trimaran.benchmarks.report.report import UNSERVED, CandidateRow, Report
from trimaran.benchmarks.report.wording import VERDICT_MARKS, megabytes, metric_name, number, times
from trimaran.core.tasks import task

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {
    "reference": "dim",
    "chosen": "bold green",
    "passed": "",
    "rejected": "yellow",
    "stopped": "dim",
    "failed": "red",
}


def summary_json(report: Report) -> dict[str, Any]:
    """`winner`, `verdict` and `candidates`, all plain JSON."""
    return {
        "winner": report.verdict.chosen,
        "verdict": str(report.verdict),
        "candidates": [_candidate_json(report, row) for row in report.candidates],
    }


def _candidate_json(report: Report, row: CandidateRow) -> dict[str, Any]:
    ratios = speedups_of(report, row.name)
    return {
        "name": row.name,
        "backend": row.backend,
        "precision": row.precision,
        "verdict": row.verdict,
        "reason": row.reason,
        "speedup": {
            str(shape): {key: round(value, 4) for key, value in ratio._asdict().items() if key != "rounds"}
            for shape, ratio in ratios.items()
        },
        "quality": _quality_json(row),
        "size_bytes": row.size_bytes,
        "peak_memory_bytes": row.peak_memory_bytes,
        "execution_environment": row.execution_environment,
    }


def _quality_json(row: CandidateRow) -> dict[str, Any] | None:
    if row.quality is None:
        return None
    plain: dict[str, Any] = json.loads(row.quality.model_dump_json())
    gates = [
        {**json.loads(check.model_dump_json(exclude={"detail"})), "holds": check.holds} for check in row.quality.checks
    ]
    return {**plain["metrics"], "rows": plain["rows"], "changes": plain["changes"], "n": plain["n"], "gates": gates}


def summary_table(report: Report) -> Table:
    """One row a candidate, narrow enough for eighty columns; intervals and memory are in the report."""
    from rich.table import Table
    from rich.text import Text

    headline = task(report.task).headline
    shapes = shapes_of(report.measurements)
    title = f"{report.model}, speed-up over {report.reference_words}"
    table = Table(title=title, title_justify="left", header_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("candidate", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for head in (*map(str, shapes), metric_name(headline), "size"):
        table.add_column(head, justify="right", width=max(6, *map(len, head.split())))
    for row in (report.reference, *report.candidates):
        ratios = speedups_of(report, row.name)
        metrics = row.quality.metrics if row.quality else {}
        speeds = [times(ratio) if (ratio := ratios.get(shape)) else "–" for shape in shapes]
        cells = [
            row.name,
            f"{VERDICT_MARKS[row.verdict]} {row.verdict}",
            *(["1×"] * len(shapes) if row.verdict == "reference" else speeds),
            number(metrics.get(headline)),
            megabytes(row.size_bytes),
        ]
        table.add_row(*(Text(cell) for cell in cells), style=_STYLES[row.verdict])
    return table


def summary_reasons(report: Report) -> tuple[str, ...]:
    """A line for each candidate that is not served for another cause than speed, and one if times were unsteady."""
    unserved = [row for row in report.candidates if row.verdict in UNSERVED]
    noise = unsteady(report.measurements)
    return (*(f"{row.name} {row.verdict}: {row.reason}" for row in unserved), *([noise] if noise else []))
