"""The types of options, as `--help` shows them: short enough that the explanation beside them stays readable.

A flag has no type, because it takes no value. A list shows the type of one value: the option is repeated for more. Long
choices break at a `|`, never inside a word.
"""

from __future__ import annotations

import re
from typing import Any

import typer

# Characters of the type's column at 80 columns.
WIDTH = 20
_NAMES = {"Path": "path"}


def shorten_types(command: Any, parent: typer.Context | None = None) -> None:
    """Sets what is shown for every option of the command, and of the commands below it."""
    # The root's settings, such as `-h`, reach the commands below by their contexts.
    context = typer.Context(command, parent=parent, **command.context_settings)
    for below in getattr(command, "commands", {}).values():
        shorten_types(below, context)
    for parameter in command.get_params(context):
        if parameter.param_type_name == "option" and parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else shown_type(parameter.display_type(context))


def shown_type(label: str) -> str:
    """
    >>> shown_type("<int range>"), shown_type("<list[Path]>"), shown_type("<int,int,int>")
    ('<int>', '<path>', '<int int int>')
    """
    inner = re.sub(r"^list\[(.*)\]$", r"\1", label.strip("<>").removesuffix(" range")).replace(",", " ")
    lines = [""]
    for choice in re.findall(r"[^|]+\|?", _NAMES.get(inner, inner)):
        if lines[-1] and len(lines[-1] + choice) >= WIDTH:
            lines.append("")
        lines[-1] += choice
    return "<" + "\n".join(lines) + ">"
