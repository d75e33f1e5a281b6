"""`trimaran show`: an artifact's lineage, proofs and files."""

from __future__ import annotations

import typer

from trimaran.cli.app import app
from trimaran.cli.options import ArtifactArgument, JsonOption, StoreOption, open_store
from trimaran.cli.output import emit


@app.command(rich_help_panel="Look")
def show(
    artifact: ArtifactArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an artifact's lineage, what was proven of it with observed and limit, and its files.

    Example: `trimaran show openvino-fp32-41d0`
    """
    artifacts = open_store(store)
    line = artifacts.lineage(artifacts.open(artifact))
    shown = line[0]
    if as_json:
        emit(
            {
                **shown.model_dump(mode="json", by_alias=True),
                "directory": str(shown.directory),
                "digest": shown.digest,
                "lineage": [ancestor.directory.name for ancestor in line],
            }
        )
        return
    facts = {
        "artifact": shown.directory,
        "digest": shown.digest,
        "model": f"{shown.name} ({shown.family}, {shown.task})",
        "runs on": f"{shown.backend}, {shown.format}, {shown.precision}",
        "shapes": f"batch {shown.profile.batch}, sequence {shown.profile.sequence}",
        "lineage": " <- ".join(ancestor.directory.name for ancestor in line),
    }
    for key, value in facts.items():
        typer.echo(f"{key:10} {value}")
    for check in shown.checks:
        typer.echo(f"proven     {check}")
    for file in shown.files:
        typer.echo(f"file       {file.name:24} {file.size_bytes:>12,} bytes  sha256 {file.sha256[:16]}…")
