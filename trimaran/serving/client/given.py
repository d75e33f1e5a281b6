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


class Rows(NamedTuple):
    """The texts or pairs of a call. `alone` marks one given without a list: its answer comes without a list too."""

    rows: list[Any]
    alone: bool


def texts_or_pairs(given: Any) -> Rows:
    """For the methods that read single texts and pairs. One pair has to stand in a list."""
    if isinstance(given, str):
        return Rows([given], alone=True)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given):
        raise UsageError(
            "A tuple of two strings may be two texts or one pair.",
            hint="Give a list: [first, second] for two texts, [(first, second)] for one pair.",
        )
    wanted = "a text, or a list of texts and pairs"
    rows = _listed(given, wanted)
    return Rows(
        [row if isinstance(row, str) else _pair(row, f"entry {i}", wanted) for i, row in enumerate(rows)], False
    )


def single_texts(given: Any) -> Rows:
    if isinstance(given, str):
        return Rows([given], alone=True)
    return Rows(require_single(_listed(given, "a text, or a list of texts")), alone=False)


def questions(given: Any) -> Rows:
    """(question, context) pairs. A tuple of two strings is one of them."""
    wanted = "a (question, context) pair, or a list of them"
    if isinstance(given, tuple) and any(isinstance(part, str) for part in given):
        return Rows([_pair(given, "the pair", wanted)], alone=True)
    return Rows([_pair(row, f"entry {i}", wanted) for i, row in enumerate(_listed(given, wanted))], alone=False)


def require_single(rows: Sequence[Any]) -> list[str]:
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise UsageError(
                f"Wanted single texts, found {_kind(row)} at entry {index}.", hint="Each entry is one string."
            )
    return list(rows)


def string(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise UsageError(f"{name} wants one string, found {_kind(given)}.")
    return given


def strings(name: str, given: Any) -> list[str]:
    """A list of strings. One string is refused: read as a list it would be its characters."""
    if isinstance(given, str):
        raise UsageError(f"{name} wants a list of strings, found one string.", hint=f"Write {name}=[…].")
    rows = _listed(given, f"a list of strings as {name}")
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise UsageError(f"{name} wants a list of strings, found {_kind(row)} at entry {index}.")
    return rows


def words_by_label(name: str, given: Any) -> dict[str, list[str]]:
    """Words for each label. One string is one word."""
    wanted = "a mapping of labels to words, such as {'sport': ['football', 'tennis']}"
    if not isinstance(given, Mapping) or not given:
        found = "an empty one" if isinstance(given, Mapping) else _kind(given)
        raise UsageError(f"{name} wants {wanted}, found {found}.")
    words = {}
    for label, entry in given.items():
        words[string("A label", label)] = [entry] if isinstance(entry, str) else strings(f"{name}[{label!r}]", entry)
        if not words[label]:
            raise UsageError(f"{name} has no words for the label {label!r}.", hint="Give at least one.")
    return words


def count(name: str, given: Any, *, least: int = 1) -> int:
    """A whole number of at least `least`, of Python's or NumPy's types."""
    try:
        number = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        number = None
    if number is None or number < least:
        described = _kind(given) if number is None else number
        raise UsageError(f"{name} wants a whole number of at least {least}, found {described}.")
    return number


def seconds(name: str, given: Any) -> None:
    number = isinstance(given, Real) and not isinstance(given, bool)
    if not number or not given > 0:
        raise UsageError(f"{name} wants a number above 0, found {given if number else _kind(given)}.")


def headers(name: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise UsageError(f"{name} wants a mapping of strings to strings, found {_kind(given)}.")
    for part in (*given.keys(), *given.values()):
        if not isinstance(part, str):
            raise UsageError(f"{name} wants a mapping of strings to strings, found {_kind(part)} in it.")


def switch(name: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise UsageError(f"{name} wants True or False, found {_kind(given)}.")
    return given


def _pair(given: Any, where: str, wanted: str) -> tuple[str, str]:
    if not isinstance(given, (tuple, list)):
        raise UsageError(f"Wanted {wanted}, found {_kind(given)} as {where}.")
    if len(given) != 2:
        raise UsageError(f"Wanted {wanted}, found {len(given)} parts in {where}.", hint="A pair has two strings.")
    for part in given:
        if not isinstance(part, str):
            raise UsageError(f"Wanted {wanted}, found {_kind(part)} in {where}.", hint="A pair has two strings.")
    return given[0], given[1]


def _listed(given: Any, wanted: str) -> list[Any]:
    refused = isinstance(given, (str, bytes, bytearray, memoryview, Mapping, Set))
    try:
        entries = None if refused else iter(given)
    except TypeError:
        entries = None
    if entries is None:
        hint = "A set has no order: give a list." if isinstance(given, Set) else ""
        raise UsageError(f"Wanted {wanted}, found {_kind(given)}.", hint=hint)
    return list(entries)


def _kind(given: Any) -> str:
    return "None" if given is None else type(given).__name__
