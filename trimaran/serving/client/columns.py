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

# Others wait while one request is answered, so long texts go in requests of few texts. It is about the work of 64 texts
# of 256 tokens, which a gateway gives Triton at a time.
CHARACTERS_PER_REQUEST = 1 << 16
# Of an answer with vectors of tokens, which is padded to the longest text of the request.
_PADDED_BYTES = 32 << 20
# An estimate: English has four or five, Chinese has one.
_CHARACTERS_A_TOKEN = 3


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
    """All rows share one copy."""
    return {"OPTIONS": np.repeat(column([json.dumps(options)]), len(rows), axis=0)} if options else {}


def text_requests(
    model: Model, texts: Sequence[Text], options: Mapping[str, Any] | None = None, *, bytes_a_token: int = 0
) -> tuple[NamedTensors, ...]:
    """Requests of at most one batch. A request holds single texts or pairs, never both.

    `bytes_a_token` are those of an answer that holds something for each token.
    """
    requests = []
    if "TEXT_PAIR" not in model.inputs:
        texts = given.require_single(texts)
    chunks = runs(texts, model.max_batch_size)
    for chunk in (part for run in chunks for part in (_evenly_long(run, bytes_a_token) if bytes_a_token else (run,))):
        inputs = {"TEXT": column([text if isinstance(text, str) else text[0] for text in chunk])}
        if not isinstance(chunk[0], str):
            inputs["TEXT_PAIR"] = column([text[1] for text in chunk])
        requests.append({**inputs, **options_column(options or {}, chunk)})
    return tuple(requests)


def runs(texts: Sequence[TextRow], limit: int, *, beside: int = 0, times: int = 1) -> Iterator[Sequence[TextRow]]:
    """Texts of one request each. `beside` are the characters that are read with every text, such as a query. Each text
    is read `times` times, such as with each label.
    """
    begin = characters = 0
    for index, text in enumerate(texts, 1):
        characters += beside + _size(text) * times
        full = index - begin == limit or characters > CHARACTERS_PER_REQUEST
        if index == len(texts) or full or isinstance(texts[index], str) != isinstance(texts[begin], str):
            yield texts[begin:index]
            begin, characters = index, 0


def _evenly_long(texts: Sequence[TextRow], bytes_a_token: int) -> Iterator[Sequence[TextRow]]:
    """Texts of one request each, so that their padded answer has a bounded size."""
    begin = longest = 0
    for index, text in enumerate(texts):
        longest = max(longest, _size(text) // _CHARACTERS_A_TOKEN + 1)
        if index > begin and (index + 1 - begin) * longest * bytes_a_token > _PADDED_BYTES:
            yield texts[begin:index]
            begin, longest = index, _size(text) // _CHARACTERS_A_TOKEN + 1
    yield texts[begin:]


def _size(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def json_rows(output: str) -> Callable[[Sequence[NamedTensors]], list[Any]]:
    return lambda parts: [json.loads(row) for part in parts for row in part[output].ravel()]


def decoded(names: Array) -> list[str]:
    return [name.decode("utf-8") for name in names]
