"""`trimaran store`: what is kept of earlier runs, and how to free its room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import REPOSITORY, JsonOption, StoreOption, open_store
from trimaran.cli.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimaran.pipeline.store_care import StoredArtifact

store_app = typer.Typer(no_args_is_help=True, help="List what earlier runs keep on disk, and free the space.")
app.add_typer(store_app, name="store", rich_help_panel="Look")

RepositoriesOption = Annotated[
    list[Path] | None,
    typer.Option("-r", "--repository", help="What its versions were made from counts as deployed; repeat for more."),
]


@store_app.command("list")
def list_command(
    repositories: RepositoriesOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """List the artifacts of the store with their sizes.

    Example: `trimaran store list`
    """
    from trimaran.pipeline.store_care import stored_artifacts

    _print(stored_artifacts(open_store(store), repositories or [REPOSITORY]), "artifacts", as_json)


@store_app.command("prune")
def prune_command(
    repositories: RepositoriesOption = None,
    older_than: Annotated[
        float, typer.Option("--older-than", min=0, help="Age in days; younger artifacts stay.")
    ] = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the artifacts that no deployed version descends from. They are made again when they are needed.

    Example: `trimaran store prune --older-than 30`
    """
    from trimaran.pipeline.store_care import prune

    removed = prune(open_store(store), repositories or [REPOSITORY], older_than_days=older_than, dry_run=dry_run)
    _print(removed, "to remove" if dry_run else "removed", as_json)


def _print(rows: Sequence[StoredArtifact], what: str, as_json: bool) -> None:
    if as_json:
        emit({"artifacts": [row.model_dump(mode="json") for row in rows]})
        return
    for row in rows:
        deployed = ", deployed" if row.deployed else ""
        typer.echo(
            f"{row.own_bytes / 1e6:9.1f} MB  {row.folder.name:40} {row.model}, {row.age_days:.0f} days{deployed}"
        )
    typer.echo(f"{sum(row.own_bytes for row in rows) / 1e6:9.1f} MB  {len(rows)} {what}")
