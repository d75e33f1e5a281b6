"""Reads a JSON file of a model folder, or says which file is missing or damaged. A model folder may be a stranger's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trimaran.core.errors import IntegrityError, UsageError

# The index of a checkpoint has a line for each tensor; the other files are smaller.
_LARGEST_BYTES = 64 << 20


def read_json(path: Path, *, what: str, kind: type = dict) -> Any:
    if not path.is_file():
        raise UsageError(f"{what}: {path} is missing.", hint="A model folder has config.json, weights and a tokenizer.")
    if path.stat().st_size > _LARGEST_BYTES:
        raise IntegrityError(f"{path} has {path.stat().st_size:,} bytes. At most {_LARGEST_BYTES:,} are read.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is not JSON: {error}.") from error
    if not isinstance(data, kind):
        raise IntegrityError(f"{path} holds a {type(data).__name__}, wanted a {kind.__name__}.")
    return data


def path_inside(folder: Path, name: str, *, stated_in: str) -> Path:
    """`folder / name`. Raises IntegrityError if the name leads out of the folder.

    A link is followed: the hub's own folders consist of them.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise IntegrityError(
            f"{stated_in} in {folder} names {name!r}, which is not inside the folder.",
            hint="Get the model from where it was published.",
        )
    return folder / name
