"""`trimaran show`: an artifact's lineage, proofs and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    NameOrArtifactArgument,
    RepositoryOption,
    StoreOption,
    open_store,
)
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from trimaran.core.artifact import Artifact
    from trimaran.core.store import Store


@app.command(rich_help_panel="Look")
def show(
    artifact: NameOrArtifactArgument,
    repository: RepositoryOption = REPOSITORY,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an artifact's lineage, what was proven of it with observed and limit, and its files.

    With the name of a deployed model, the artifact of its served version is shown.

    Example: `trimaran show openvino-fp32-41d0`
    """
    artifacts = open_store(store)
    line = artifacts.lineage(_opened(artifact, artifacts, repository))
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


def _opened(reference: str, store: Store, repository: Path) -> Artifact:
    from trimaran.core.artifact import load_artifact
    from trimaran.core.config_pbtxt import CONFIG_FILE
    from trimaran.pipeline.artifact_lookup import served_version

    if "/" not in reference and (repository / reference / CONFIG_FILE).is_file():
        return load_artifact(served_version(repository, reference), verify=False)
    return store.open(reference)
