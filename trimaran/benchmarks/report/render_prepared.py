"""A prepared version for people and scripts. Every time in it is called predicted, because none was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trimaran.benchmarks.report.markdown import markdown_code, markdown_table, markdown_text
from trimaran.benchmarks.report.wording import VERDICT_MARKS, megabytes, metric_name, number
from trimaran.core.samples import Shape
from trimaran.core.tasks import task
from trimaran.judging.prepared import Prepared, PreparedCandidate, TargetBuild

if TYPE_CHECKING:
    from rich.table import Table


def prepared_json(prepared: Prepared) -> dict[str, Any]:
    """What `trimaran deploy --target … --json` says of the candidates, as plain JSON."""
    return {
        "state": prepared.state,
        "winner": prepared.chosen or None,
        "verdict": prepared.headline,
        "targets": list(prepared.targets),
        "candidates": [_candidate_json(row) for row in prepared.candidates],
    }


def _candidate_json(row: PreparedCandidate) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(row.model_dump_json(exclude={"quality", "builds"}))
    checks = row.quality.checks if row.quality else ()
    builds = [json.loads(build.model_dump_json(exclude={"predictions"})) for build in row.builds]
    for build, facts in zip(row.builds, builds, strict=True):
        facts["predicted_ms"] = {
            item.gpu: {str(other.shape): other.predicted_ms for other in build.predictions if other.gpu == item.gpu}
            for item in build.predictions
        }
    gates = [{**json.loads(check.model_dump_json(exclude={"detail"})), "holds": check.holds} for check in checks]
    metrics = dict(row.quality.metrics) if row.quality else None
    return {**plain, "metrics_on_cpu": metrics, "gates": gates, "builds": builds}


def prepared_markdown(prepared: Prepared) -> str:
    heads, rows = _cells(prepared)
    lines = [
        f"# {prepared.model}, prepared for {', '.join(prepared.targets)}",
        "",
        markdown_text(prepared.headline),
        "",
        "**No time on this page was measured.** Predicted milliseconds are lower bounds by a roofline over the kernels "
        "that the builder's receipt names.",
        "",
        *markdown_table(heads, [[markdown_code(cell) for cell in row] for row in rows], left=3),
        "",
        "## Why",
        "",
        *(f"- `{row.name}` {row.verdict}: {markdown_text(row.reason)}" for row in prepared.candidates),
        "",
        "## Builds",
        "",
        *markdown_table(("candidate", "target", "builder", "result"), [list(row) for row in _build_rows(prepared)]),
        "",
        *(f"- {markdown_text(note)}" for note in prepared.notes),
        "",
        f"`{markdown_code(' '.join(prepared.command))}`, {prepared.created}, on {prepared.environment.cpu}.",
    ]
    return "\n".join(lines) + "\n"


def prepared_table(prepared: Prepared) -> Table:
    """The same rows for a terminal."""
    from rich.table import Table
    from rich.text import Text

    heads, rows = _cells(prepared)
    table = Table(
        title=f"{prepared.model}, predicted milliseconds (nothing was measured)",
        title_justify="left",
        header_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index < 2 else "right", no_wrap=index < 2)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cells(prepared: Prepared) -> tuple[list[str], list[list[str]]]:
    """One row for each candidate and target; the shapes are columns."""
    headline = task(prepared.task).headline
    shapes = list(dict.fromkeys(
        item.shape for row in prepared.candidates for build in row.builds for item in build.predictions
    ))  # fmt: skip
    heads = [
        "candidate",
        "verdict",
        "target",
        *(f"predicted {shape}" for shape in shapes),
        metric_name(headline),
        "size",
    ]
    rows = []
    for row in prepared.candidates:
        metrics = row.quality.metrics if row.quality else {}
        tail = [number(metrics.get(headline)), megabytes(row.size_bytes)]
        verdict = f"{VERDICT_MARKS[row.verdict]} {row.verdict}"
        builds = row.builds or (None,)
        rows += [[row.name, verdict, _target(build), *_times(build, shapes), *tail] for build in builds]
    return heads, rows


def _target(build: TargetBuild | None) -> str:
    if build is None:
        return "–"
    return build.target if build.built else f"{build.target} unbuilt"


def _times(build: TargetBuild | None, shapes: Sequence[Shape]) -> list[str]:
    by_shape = {item.shape: f"≥ {item.predicted_ms:.3f}" for item in (build.predictions if build else ())}
    return [by_shape.get(shape, "–") for shape in shapes]


def _build_rows(prepared: Prepared) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"`{row.name}`",
            build.target,
            build.builder,
            markdown_text("; ".join(map(str, build.receipt)) if build.built else build.reason),
        )
        for row in prepared.candidates
        for build in row.builds
    ]
