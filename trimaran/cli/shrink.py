"""`trimaran shrink`: a smaller model, as a folder that `trimaran deploy` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import JsonOption, TaskOption, progress_on_stderr
from trimaran.cli.output import emit


@app.command("shrink", rich_help_panel="Stages")
def shrink_command(
    model: Annotated[str, typer.Argument(help="A model folder, or `package:NAME`.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    vocabulary: Annotated[
        list[Path],
        typer.Option(
            "--vocabulary",
            help="Texts (.txt, .jsonl, .tsv, .csv, .parquet) whose tokens stay; again for more files.",
        ),
    ],
    task: TaskOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Leave out the tokens that your texts do not use. No training; the answers to these texts stay the same.

    A multilingual model that reads one language becomes about half as large. Single characters always stay, so that
    every text can be read.

    Example: `trimaran shrink ./my-model -o smaller --vocabulary texts.txt`
    """
    from trimaran.pipeline.shrink import shrink_vocabulary

    report = shrink_vocabulary(model, vocabulary, output, task_name=task or "auto", progress=progress_on_stderr())
    if as_json:
        emit(report.model_dump(mode="json", by_alias=True))
        return
    typer.echo(report.headline)
    typer.echo(f"Next: trimaran deploy -m {output}")
