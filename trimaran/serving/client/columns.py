"""The columns of a request, texts as UTF-8 and options as JSON, and the strings of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from trimaran.core.errors import UsageError
from trimaran.runtime.text import Array, Text
from trimaran.serving.client import given
from trimaran.serving.client.question import Model, NamedTensors

Row = TypeVar("Row")
TextRow = TypeVar("TextRow", bound=Text)

# Others wait while one request is tokenised, so long texts go in requests of few texts.
CHARACTERS_PER_REQUEST = 1 << 18


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
    "outputs": given.strings,
    "targets": given.strings,
    "label_words": given.words_by_label,
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


def text_requests(
    model: Model, texts: Sequence[Text], options: Mapping[str, Any] | None = None
) -> tuple[NamedTensors, ...]:
    """Requests of at most one batch. A request holds single texts or pairs, never both."""
    requests = []
    if "TEXT_PAIR" not in model.inputs:
        texts = given.require_single(texts)
    for chunk in runs(texts, model.max_batch_size):
        inputs = {"TEXT": column([text if isinstance(text, str) else text[0] for text in chunk])}
        if not isinstance(chunk[0], str):
            inputs["TEXT_PAIR"] = column([text[1] for text in chunk])
        requests.append({**inputs, **options_column(options or {}, chunk)})
    return tuple(requests)


def runs(texts: Sequence[TextRow], limit: int, *, beside: int = 0) -> Iterator[Sequence[TextRow]]:
    """Texts of one request each. `beside` are the characters that are read with every text, such as a query."""
    begin = characters = 0
    for index, text in enumerate(texts, 1):
        characters += beside + len(text) if isinstance(text, str) else len(text[0]) + len(text[1])
        full = index - begin == limit or characters > CHARACTERS_PER_REQUEST
        if index == len(texts) or full or isinstance(texts[index], str) != isinstance(texts[begin], str):
            yield texts[begin:index]
            begin, characters = index, 0


def json_rows(output: str) -> Callable[[Sequence[NamedTensors]], list[Any]]:
    return lambda parts: [json.loads(row) for part in parts for row in part[output].ravel()]


def decoded(names: Array) -> list[str]:
    return [name.decode("utf-8") for name in names]
