"""The columns of a request: texts as UTF-8, options as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trimaran.core.errors import UsageError
from trimaran.serving.client import given

Array = npt.NDArray[Any]
Row = TypeVar("Row")


def portions(rows: Sequence[Row], limit: int) -> Iterator[Sequence[Row]]:
    for begin in range(0, len(rows), limit):
        yield rows[begin : begin + limit]


def column(texts: Sequence[str]) -> Array:
    try:
        return np.array([[text.encode("utf-8")] for text in texts], dtype=np.object_)
    except UnicodeEncodeError as error:
        raise UsageError(f"A text cannot be written as UTF-8: {error.reason} at {error.start}.") from error


# Options that are not strings, with what checks them.
_OPTION_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "top_k": given.count,
    "longest": given.count,
    "stride": given.count,
    "multi_label": given.switch,
    "no_answer": given.switch,
    "ignore": given.strings,
}


def given_options(**options: Any) -> dict[str, Any]:
    """The options that were given, each of its type; the server checks their values."""
    checked = {}
    for name, value in options.items():
        if value is not None:
            check: Callable[[str, Any], Any] = _OPTION_CHECKS.get(name) or given.string
            checked[name] = check(name, value)
    return checked


def options_column(options: Mapping[str, Any], rows: Sequence[Any]) -> dict[str, Array]:
    return {"OPTIONS": column([json.dumps(options)] * len(rows))} if options else {}
