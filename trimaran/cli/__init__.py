"""The command line: parses, calls the pipeline, prints; every foreign error is translated at this one border."""

from __future__ import annotations

import errno
import json
import sys
from typing import Annotated

import typer

from trimaran.core.errors import TrimaranError, UsageError

app = typer.Typer(
    name="trimaran",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Puts a trained transformer encoder into production: exports it to ONNX, makes faster versions, **proves**
each against eager PyTorch, **measures** each beside it, and serves the fastest that keeps the answers with Triton.

Start with `trimaran doctor`, then `trimaran deploy -m MODEL`.""",
)

_NO_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS}


def _version(wanted: bool) -> None:
    if wanted:
        from trimaran import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with the exit code of the table in `errors`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _register_commands()
    try:
        app(args=arguments, prog_name="trimaran", standalone_mode=True)
    except TrimaranError as error:
        _fail(error, as_json="--json" in arguments)
    except OSError as error:
        _fail(_translated(error), as_json="--json" in arguments)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


def _register_commands() -> None:
    from trimaran.cli import (  # noqa: F401  (importing them adds their commands)
        bench,
        deploy,
        encode,
        export,
        gateway,
        index,
        init,
        kubernetes,
        promote,
        report,
        serve,
        show,
        tune,
    )


def _translated(error: OSError) -> TrimaranError:
    from trimaran.core.store import NO_SPACE, disk_full

    where = f"{error.filename}: " if error.filename else ""
    if error.errno in NO_SPACE:
        return disk_full(error.filename or "Writing failed")
    if error.errno in _NO_WRITE:
        return UsageError(f"{where}{error.strerror}.", hint="Choose a folder that you may write to.")
    raise error


def _fail(error: TrimaranError, *, as_json: bool) -> None:
    sys.stderr.write(f"Error: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": error.as_json()}) + "\n")
    sys.exit(error.exit_code)
