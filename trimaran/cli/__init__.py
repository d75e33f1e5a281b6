"""The command line: parses arguments, calls the pipeline and prints. Every foreign error is translated here."""

from __future__ import annotations

import errno
import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

from trimaran.core.errors import TrimaranError, UsageError

if TYPE_CHECKING:
    import typer

# Importing a module adds its commands to the app. The help shows them in this order.
MODULES = (
    "deploy", "up", "export", "shrink", "quantize", "bench", "serve", "status", "query", "promote", "tune", "gateway",
    "repository", "finish", "package", "size", "kubernetes", "encode", "index", "report", "look", "show", "store",
    "doctor", "init",
)  # fmt: skip
_NO_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS}


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and ends the process with the exit code of the table in `core/errors.py`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _command()(args=arguments, prog_name="trimaran", standalone_mode=True)
    except TrimaranError as error:
        _fail(error, as_json="--json" in arguments)
    except OSError as error:
        _fail(_translated(error), as_json="--json" in arguments)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


def command_line() -> typer.Typer:
    """The app with all of its commands."""
    for module in MODULES:
        importlib.import_module(f"trimaran.cli.{module}")
    return importlib.import_module("trimaran.cli.app").app  # type: ignore[no-any-return]


def _command() -> Any:
    """The same as a click command, with types that leave room for the help."""
    from typer.main import get_command

    from trimaran.cli.help_types import shorten_types

    command = get_command(command_line())
    shorten_types(command)
    return command


def _translated(error: OSError) -> TrimaranError:
    from trimaran.core.store import NO_SPACE, disk_full

    path = f"{error.filename}: " if error.filename else ""
    if error.errno in NO_SPACE:
        return disk_full(error.filename or "Writing failed")
    if error.errno in _NO_WRITE:
        return UsageError(f"{path}{error.strerror}.", hint="Choose a folder that you may write to.")
    raise error


def _fail(error: TrimaranError, *, as_json: bool) -> None:
    sys.stderr.write(f"Error: {error}\n")
    if as_json:
        sys.stdout.write(json.dumps({"error": error.as_json()}) + "\n")
    sys.exit(error.exit_code)
