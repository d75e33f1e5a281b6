"""`trimaran repository`: lay out and check Triton model repositories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    NameOption,
    RepositoryArgument,
    StoreOption,
    ThreadsOption,
    open_store,
)
from trimaran.cli.output import emit
from trimaran.core.choices import Rows

repository_app = typer.Typer(no_args_is_help=True, help="Lay out and check Triton model repositories.")
app.add_typer(repository_app, name="repository", rich_help_panel="Serve")


@repository_app.command("lay-out")
def lay_out_command(
    artifact: Annotated[str, typer.Argument(help="A candidate: folder, name in the store, or digest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model repository to add to.")] = REPOSITORY,
    name: NameOption = None,
    rows: Annotated[
        Rows, typer.Option("--rows", help="How rows may share a call; `alone` is safe for every engine.")
    ] = "alone",
    separate: Annotated[
        bool | None,
        typer.Option("--separate/--together", help="The engine as a model of its own; by default so on a GPU only."),
    ] = None,
    threads: ThreadsOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an artifact to a repository as the next version of a model.

    Example: `trimaran repository lay-out openvino-fp32-41d0 --name minilm`
    """
    from trimaran.core.environment import usable_cores
    from trimaran.model_repository.layout import lay_out

    chosen = open_store(store).open(artifact)
    deployment = lay_out(
        chosen,
        repository=output,
        name=name or chosen.name,
        rows=rows,
        threads=threads or usable_cores(),
        separate=separate,
    )
    if as_json:
        emit(deployment.model_dump(mode="json"))
    else:
        typer.echo(f"{deployment.repository / deployment.name / str(deployment.version)}")


@repository_app.command("check")
def check_command(repository: RepositoryArgument = REPOSITORY, as_json: JsonOption = False) -> None:
    """Name every problem of a repository at once, each with its place and its remedy; exit 4 when there is one.

    Example: `trimaran repository check model_repository`
    """
    from trimaran.model_repository.check import problems, require_sound

    if as_json:
        listed = [problem.model_dump(mode="json") for problem in problems(repository)]
        emit({"repository": str(repository), "problems": listed})
    require_sound(repository)
    if not as_json:
        typer.echo(f"{repository}: no problem found.")
