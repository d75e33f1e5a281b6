"""What crosses the wire: the tensors and options of a task, and how a task's answers become tensors.

It travels with a deployed model. A task's own part of the contract stands in `tasks/<task>.py`; the repository, the
server and the clients read it from there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .text import Array

VERSION = "1"
OPTIONS = "OPTIONS"
# The output that counts the texts of a row of which the model read only a part.
TRUNCATED = "TRUNCATED"
# The output that counts the tokens of a row that the model read, special ones included.
READ_COUNT = "TOKEN_COUNT"
# What every model says of a row beside its answer.
COUNTS = (TRUNCATED, READ_COUNT)
FIRST = "first"
# The option that names one of the model's prompts.
PROMPT = "prompt"
# The option with words of the caller's own in the place of a prompt.
INSTRUCTION = "instruction"
# One row may ask for many pairs: the documents of a query, the labels of a text.
MOST_ENTRIES = 1024

Tensors = dict[str, Array]
Answer = Any


@dataclass(frozen=True)
class Input:
    """A BYTES tensor of one string a row, or of several."""

    name: str
    # Several strings a row.
    many: bool = False
    optional: bool = False
    # A few words by nature, such as a question or a label.
    brief: bool = False


@dataclass(frozen=True)
class Output:
    """One output tensor of the text stage."""

    name: str
    data_type: str
    # Numbers (-1 for any), or the name of the engine's output whose dims these are (`first`: its first output).
    # An output that stands for a named output of the engine exists only where the engine gives that one.
    dims: tuple[int, ...] | str = (1,)


@dataclass(frozen=True)
class ServedTask:
    """How one task is asked and answered over the wire."""

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    # The strings of one row -> one item for `answer`.
    item: Callable[[Mapping[str, Any]], Any]
    # (model, items, **options) -> one answer an item.
    answer: Callable[..., list[Answer]]
    # Answers of several items -> output tensors.
    tensors: Callable[[Sequence[Answer]], Tensors]
    # Name and type of each option: int, bool, str, list (of strings) or dict (of lists of strings).
    options: Mapping[str, type] = field(default_factory=dict)
    # Inputs that `answer` takes as a keyword and not as part of an item.
    keywords: Mapping[str, str] = field(default_factory=dict)
    # (item, keywords) -> how many rows of tokens one item is.
    encoded_rows: Callable[[Any, Mapping[str, Any]], int] = lambda item, keywords: 1
    # Which of an item's rows were cut -> how many of its texts were.
    truncated: Callable[[Sequence[bool]], int] = sum

    def parsed_options(self, text: str) -> dict[str, Any]:
        """The options of one row. Raises ValueError with a sentence."""
        try:
            options = json.loads(text) if text else {}
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{OPTIONS} is not JSON: {str(error)[:200]}.") from error
        if not isinstance(options, dict):
            raise ValueError(f"{OPTIONS} wants a JSON object, found {type(options).__name__}.")
        for name, value in options.items():
            if name not in self.options:
                raise ValueError(
                    f"Unknown option {name[:80]!r} of {self.name}. Known: {', '.join(self.options) or 'none'}."
                )
            if not _is_a(value, self.options[name]):
                raise ValueError(f"Option {name} wants {_WORDS[self.options[name]]}.")
        return options

    def question(self, row: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The item of a row and the keywords of how it is asked. Raises ValueError with a sentence."""
        keywords = self.parsed_options(str(row.get(OPTIONS, "")))
        return self.item(row), keywords | {keyword: row[name] for name, keyword in self.keywords.items()}


_WORDS: dict[type, str] = {
    int: "a number from 1 to 10000",
    bool: "true or false",
    str: "a string",
    list: "a list of strings",
    dict: "an object with a list of strings for each name",
}


def _is_a(value: Any, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000
    if kind is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    if kind is dict:
        return isinstance(value, dict) and all(_is_a(entries, list) for entries in value.values())
    return isinstance(value, kind)


# What several tasks share.

TEXT = Input("TEXT")
TEXT_OR_PAIR = (TEXT, Input("TEXT_PAIR", optional=True))
TOP_K: dict[str, type] = {"top_k": int}


def single_text(row: Mapping[str, Any]) -> Any:
    return row["TEXT"]


def text_or_pair(row: Mapping[str, Any]) -> Any:
    return (row["TEXT"], row["TEXT_PAIR"]) if "TEXT_PAIR" in row else row["TEXT"]


def strings(values: Sequence[str]) -> Array:
    """A column of UTF-8 bytes."""
    return np.array([value.encode("utf-8") for value in values], dtype=np.object_)


def json_column(name: str) -> Callable[[Sequence[Answer]], Tensors]:
    """One JSON string a row."""

    def tensors(answers: Sequence[Answer]) -> Tensors:
        return {name: strings([json.dumps(answer, ensure_ascii=False) for answer in answers])[:, None]}

    return tensors


def labels_and_scores(answers: Sequence[Answer]) -> Tensors:
    """Answers that are lists of `{"label": ..., "score": ...}`, all of one length."""
    return {
        "LABELS": np.stack([strings([entry["label"] for entry in answer]) for answer in answers]),
        "SCORES": np.asarray([[entry["score"] for entry in answer] for answer in answers], np.float32),
    }


def indexed_columns(indices: str, scores: str) -> Callable[[Sequence[Answer]], Tensors]:
    """Answers that are lists of `{"index": ..., "score": ...}`; shorter ones are filled up with -1 and 0."""

    def tensors(answers: Sequence[Answer]) -> Tensors:
        return {
            indices: filled([[entry["index"] for entry in answer] for answer in answers], -1, np.int64),
            scores: filled([[entry["score"] for entry in answer] for answer in answers], 0, np.float32),
        }

    return tensors


def best_first(scores: Array, top_k: int | None = None) -> list[Answer]:
    """Indices with their scores, the highest score first."""
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [{"index": int(index), "score": float(scores[index])} for index in order]


def filled(rows: Sequence[Any], fill: Any, dtype: Any) -> Array:
    """Rows of one rank and unlike shapes as one array, filled up with `fill`."""
    arrays = [np.asarray(row, dtype) for row in rows]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    whole = np.full((len(arrays), *shape), fill, dtype)
    for index, array in enumerate(arrays):
        whole[(index, *(slice(size) for size in array.shape))] = array
    return whole
