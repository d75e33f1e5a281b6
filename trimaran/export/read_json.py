"""Reads a JSON file of a model folder, or says which file is missing or damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trimaran.core.errors import IntegrityError, UsageError


def read_json(path: Path, *, what: str, kind: type = dict) -> Any:
    if not path.is_file():
        raise UsageError(f"{what}: {path} is missing.", hint="A model folder has config.json, weights and a tokenizer.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON: {error}.") from error
    if not isinstance(data, kind):
        raise IntegrityError(f"{path} holds a {type(data).__name__}, wanted a {kind.__name__}.")
    return data
