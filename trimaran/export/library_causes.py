"""The first difference between our answer to a text and the library's, with its likely cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from trimaran.core.tasks.library import Library
from trimaran.runtime.answers import Reader

# Rounding of fp32, relative to the largest number of an answer where that is above 1.
ROUNDING = 2e-5
_SAME_DIRECTION = 1e-6
# Letters by which the beginning of a text is recognised.
_BEGINNING = 16


class FedRow(NamedTuple):
    """What a model was given for one row, without padding."""

    tokens: tuple[int, ...]
    # None if the model was given none.
    segments: tuple[int, ...] | None


class BothAnswers(NamedTuple):
    """Both answers to one request, and what both models were fed for it."""

    row: Library
    ours: Any
    theirs: Any
    our_rows: tuple[FedRow, ...]
    their_rows: tuple[FedRow, ...]
    reader: Reader
    # Tokens at which we cut a text.
    maximum: int


class Difference(NamedTuple):
    # The largest difference of a number.
    size: float
    # The difference in a sentence, and its cause; empty if it is only rounding.
    words: str = ""
    cause: str = ""


def first_difference(sides: BothAnswers, *, with_numbers: bool) -> Difference:
    """Tokens first: other tokens explain other numbers. Rows are compared by length, whatever order they ran in."""
    ours, theirs = sorted(sides.our_rows, key=_order), sorted(sides.their_rows, key=_order)
    for mine, other in zip(ours, theirs, strict=False):
        if mine.tokens != other.tokens:
            return _token_difference(mine.tokens, other.tokens, sides)
    if len(ours) != len(theirs):
        words = f"the library reads it in {len(theirs)} rows, we in {len(ours)}."
        return Difference(float("inf"), words, "windows of a long text")
    segments = [row.segments for row in ours] == [row.segments for row in theirs]
    return _number_difference(sides, same_segments=segments) if with_numbers else Difference(0.0)


def _order(row: FedRow) -> tuple[int, tuple[int, ...]]:
    return len(row.tokens), row.tokens


def _token_difference(ours: Sequence[int], theirs: Sequence[int], sides: BothAnswers) -> Difference:
    index = next(
        (position for position, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    shown = [_token(tokens, index, sides.reader) for tokens in (ours, theirs)]
    words = (
        f"token {index} is {shown[1]} in the library and {shown[0]} with us "
        f"({len(theirs)} tokens there, {len(ours)} here)."
    )
    return Difference(float("inf"), words, _token_cause(ours, theirs, sides))


def _token(tokens: Sequence[int], index: int, reader: Reader) -> str:
    return repr(reader.token(tokens[index])) if index < len(tokens) else "absent"


def _token_cause(ours: Sequence[int], theirs: Sequence[int], sides: BothAnswers) -> str:
    texts = [sides.reader.text(tokens, skip_special=True) for tokens in (ours, theirs)]
    plain = ["".join(text.split()) for text in texts]
    if plain[0] == plain[1]:
        return "special tokens or white space"
    if plain[0].lower() == plain[1].lower():
        return "lower-casing"
    if len(ours) != len(theirs) and sides.maximum in (len(ours), len(theirs)):
        return "the maximum length"
    # The library puts words before our text, or we before its text; where both were cut, their ends differ too.
    if plain[0].endswith(plain[1]) or plain[1].find(plain[0][:_BEGINNING]) > 0:
        return "the prompt"
    return "the side that is cut" if len(ours) == len(theirs) == sides.maximum else "the tokenizer"


def _number_difference(sides: BothAnswers, *, same_segments: bool) -> Difference:
    ours, theirs = sides.row.numbers(sides.ours), sides.row.numbers(sides.theirs)
    largest = 0.0
    for name in dict.fromkeys((*theirs, *ours)):
        mine, other = (np.asarray(side.get(name, 0.0), np.float64) for side in (ours, theirs))
        if mine.shape != other.shape:
            words = f"{name} has the shape {list(other.shape)} in the library and {list(mine.shape)} with us."
            return Difference(float("inf"), words, "the truncation of dimensions")
        size = float(np.abs(mine - other).max(initial=0.0) / max(1.0, np.abs(other).max(initial=0.0)))
        # A number that is not one on both sides is the same answer.
        size = 0.0 if np.isnan(mine).all() and np.isnan(other).all() else size
        largest = max(largest, size)
        if not size <= ROUNDING:
            index = np.unravel_index(int(np.abs(mine - other).argmax()), mine.shape)
            words = f"{name} is {other[index]:.6g} in the library and {mine[index]:.6g} with us, from the same tokens."
            return Difference(size, words, _number_cause(mine, other, sides.row, same_segments=same_segments))
    return Difference(largest)


def _number_cause(ours: Any, theirs: Any, row: Library, *, same_segments: bool) -> str:
    if not same_segments:
        return "segment ids"
    lengths = float(np.linalg.norm(ours) * np.linalg.norm(theirs))
    if ours.ndim == 1 and lengths and 1 - float(ours @ theirs) / lengths < _SAME_DIRECTION:
        return "normalisation"
    return row.cause
