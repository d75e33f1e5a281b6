"""The command `trimaran`, to which every module of this folder adds its own commands."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="trimaran",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Puts a trained transformer encoder into production: exports it to ONNX, makes faster versions, **proves**
each against eager PyTorch, **measures** each beside it, and serves the fastest that keeps the answers with Triton.

Start with `trimaran doctor`, then `trimaran deploy -m MODEL`.""",
)


def _print_version(requested: bool) -> None:
    if requested:
        from trimaran import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
