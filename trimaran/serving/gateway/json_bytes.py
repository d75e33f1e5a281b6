"""Answers as JSON. Vectors are written from their arrays, without a Python number in between."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
import pydantic_core

# An environment that was made before the gateway wanted it has none: then the same JSON is written more slowly.
orjson: Any = importlib.import_module("orjson") if importlib.util.find_spec("orjson") else None


def to_json(value: Any) -> bytes:
    """Numbers of a float32 array get the fewest digits that are read as the same float32."""
    if orjson is not None:
        try:
            return bytes(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
        except TypeError:
            # An integer of more than 64 bits, which a caller may use as the id of a request.
            pass
    return pydantic_core.to_json(value, fallback=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
