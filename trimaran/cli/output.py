"""What several commands print: one JSON object for scripts, or lines for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from trimaran.benchmarks.report.report import Report
    from trimaran.core.artifact import Artifact
    from trimaran.core.store import Store
    from trimaran.judging.prepared import Prepared


def emit(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))


def emit_artifact(
    artifact: Artifact,
    as_json: bool,
    *,
    store: Store,
    folder: Path | None = None,
    parent: str = "",
    layout: str = "plain",
) -> None:
    """With `folder`, the artifact is written there first, as a plain folder or as optimum's, and shown from there."""
    from trimaran.pipeline.plain_folder import write_optimum_folder, write_plain_folder

    written, beside = artifact.directory, Path(parent) if parent else None
    if folder and layout == "optimum":
        written = write_optimum_folder(artifact, folder, store=store, parent=beside)
    elif folder:
        written = write_plain_folder(artifact, folder, store=store, parent=beside).directory
    if as_json:
        checks = [str(check) for check in artifact.checks]
        emit({"artifact": str(written), "digest": artifact.digest, "checks": checks})
    else:
        typer.echo(str(written))


def print_summary(report: Report) -> None:
    from rich.console import Console

    from trimaran.benchmarks.report.summary import summary_reasons, summary_table

    console = Console(highlight=False)
    console.print(summary_table(report))
    for reason in summary_reasons(report):
        console.print(reason, markup=False)
    console.print(f"\n{report.verdict}\n", style="bold", markup=False)


def print_prepared(prepared: Prepared) -> None:
    from rich.console import Console

    from trimaran.benchmarks.report.render_prepared import prepared_table

    console = Console(highlight=False)
    console.print(prepared_table(prepared))
    for row in prepared.candidates:
        if not row.holds:
            console.print(f"{row.name} {row.verdict}: {row.reason}", markup=False)
    console.print(f"\n{prepared.headline}\n", style="bold", markup=False)
