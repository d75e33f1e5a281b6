"""What a caller gives, checked and brought into one form; raises UsageError with what was wanted and what was found.

A text is one string. A list of texts may be any iterable with an order: a list, a tuple, a generator, an array.
A pair is a tuple, or inside a list also a list, of exactly two strings.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Real
from typing import Any, NamedTuple

from trimaran.core.errors import UsageError
from trimaran.runtime.text import Text

TextOrTexts = str | Iterable[Text]
StringOrStrings = str | Iterable[str]


class GivenRows(NamedTuple):
    """The texts or pairs of a call. `alone` marks one given without a list: its answer comes without a list too."""

    rows: list[Any]
    alone: bool


def texts_or_pairs(value: Any) -> GivenRows:
    """For the methods that read single texts and pairs. One pair has to stand in a list."""
    if isinstance(value, str):
        return GivenRows([value], alone=True)
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value):
        raise UsageError(
            "A tuple of two strings may be two texts or one pair.",
            hint="Give a list: [first, second] for two texts, [(first, second)] for one pair.",
        )
    wanted = "a text, or a list of texts and pairs"
    rows = _listed(value, wanted)
    return GivenRows(
        [row if isinstance(row, str) else _pair(row, f"entry {i}", wanted) for i, row in enumerate(rows)], False
    )


def single_texts(value: Any) -> GivenRows:
    if isinstance(value, str):
        return GivenRows([value], alone=True)
    return GivenRows(require_single(_listed(value, "a text, or a list of texts")), alone=False)


def questions(value: Any) -> GivenRows:
    """(question, context) pairs. A tuple of two strings is one of them."""
    wanted = "a (question, context) pair, or a list of them"
    if isinstance(value, tuple) and any(isinstance(part, str) for part in value):
        return GivenRows([_pair(value, "the pair", wanted)], alone=True)
    return GivenRows([_pair(row, f"entry {i}", wanted) for i, row in enumerate(_listed(value, wanted))], alone=False)


def require_single(rows: Sequence[Any]) -> list[str]:
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise UsageError(
                f"Wanted single texts, found {_kind(row)} at entry {index}.", hint="Each entry is one string."
            )
    return list(rows)


def string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} wants one string, found {_kind(value)}.")
    return value


def strings(name: str, value: Any) -> list[str]:
    """A list of strings. One string is refused: read as a list it would be its characters."""
    if isinstance(value, str):
        raise UsageError(f"{name} wants a list of strings, found one string.", hint=f"Write {name}=[…].")
    rows = _listed(value, f"a list of strings as {name}")
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise UsageError(f"{name} wants a list of strings, found {_kind(row)} at entry {index}.")
    return rows


def words_by_label(name: str, value: Any) -> dict[str, list[str]]:
    """Words for each label. One string is one word."""
    wanted = "a mapping of labels to words, such as {'sport': ['football', 'tennis']}"
    if not isinstance(value, Mapping) or not value:
        described = "an empty one" if isinstance(value, Mapping) else _kind(value)
        raise UsageError(f"{name} wants {wanted}, found {described}.")
    words = {}
    for label, entry in value.items():
        words[string("A label", label)] = [entry] if isinstance(entry, str) else strings(f"{name}[{label!r}]", entry)
        if not words[label]:
            raise UsageError(f"{name} has no words for the label {label!r}.", hint="Give at least one.")
    return words


def count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least `least`, of Python's or NumPy's types."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        described = _kind(value) if number is None else number
        raise UsageError(f"{name} wants a whole number of at least {least}, found {described}.")
    return number


def seconds(name: str, value: Any) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not value > 0:
        raise UsageError(f"{name} wants a number above 0, found {value if number else _kind(value)}.")


def headers(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} wants a mapping of strings to strings, found {_kind(value)}.")
    for part in (*value.keys(), *value.values()):
        if not isinstance(part, str):
            raise UsageError(f"{name} wants a mapping of strings to strings, found {_kind(part)} in it.")


def switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} wants True or False, found {_kind(value)}.")
    return value


def _pair(value: Any, where: str, wanted: str) -> tuple[str, str]:
    if not isinstance(value, (tuple, list)):
        raise UsageError(f"Wanted {wanted}, found {_kind(value)} as {where}.")
    if len(value) != 2:
        raise UsageError(f"Wanted {wanted}, found {len(value)} parts in {where}.", hint="A pair has two strings.")
    for part in value:
        if not isinstance(part, str):
            raise UsageError(f"Wanted {wanted}, found {_kind(part)} in {where}.", hint="A pair has two strings.")
    return value[0], value[1]


def _listed(value: Any, wanted: str) -> list[Any]:
    refused = isinstance(value, (str, bytes, bytearray, memoryview, Mapping, Set))
    try:
        entries = None if refused else iter(value)
    except TypeError:
        entries = None
    if entries is None:
        hint = "A set has no order: give a list." if isinstance(value, Set) else ""
        raise UsageError(f"Wanted {wanted}, found {_kind(value)}.", hint=hint)
    return list(entries)


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__
