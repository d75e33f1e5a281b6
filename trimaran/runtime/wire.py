"""The names that cross the wire: for each task its inputs, its outputs, its options, and how rows become tensors.

It travels with a deployed model, and it is the one table that the repository, the server and the clients read.
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
FIRST = "first"
# A row of a request may ask for many pairs: documents of a query, labels of a text.
MOST_ENTRIES = 1024

Tensors = dict[str, Array]


@dataclass(frozen=True)
class Input:
    """A BYTES tensor of one string a row, or of `many`; `brief` ones are a few words by nature."""

    name: str
    many: bool = False
    optional: bool = False
    brief: bool = False


@dataclass(frozen=True)
class Output:
    """`dims` are numbers, -1 for any, or the engine's output whose dims it has: a name, or `first`.

    An output that stands for a named output of the engine is there only where the engine gives that.
    """

    name: str
    data_type: str
    dims: tuple[int, ...] | str = (1,)


@dataclass(frozen=True)
class Wire:
    """`item(row)` makes of a row's strings what `answers.ANSWERS[task]` takes; `tensors(answers)` makes the outputs.

    `options` gives the type of each option: `int`, `bool`, `str` or `list` (of strings).
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    item: Callable[[Mapping[str, Any]], Any]
    tensors: Callable[[Sequence[Any]], Tensors]
    options: Mapping[str, type] = field(default_factory=dict)
    # Inputs that `ANSWERS[task]` takes as keywords and not as part of an item, so rows must agree on them.
    keywords: Mapping[str, str] = field(default_factory=dict)


def strings(values: Sequence[str]) -> Array:
    """A column of UTF-8 bytes."""
    return np.array([value.encode("utf-8") for value in values], dtype=np.object_)


def parsed_options(task: str, text: str) -> dict[str, Any]:
    """The options of one row. Raises ValueError with a sentence."""
    known = WIRES[task].options
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{OPTIONS} is not JSON: {str(error)[:200]}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{OPTIONS} wants a JSON object, found {type(found).__name__}.")
    for name, value in found.items():
        if name not in known:
            raise ValueError(f"Unknown option {name[:80]!r} of {task}. Known: {', '.join(known) or 'none'}.")
        if not _is_a(value, known[name]):
            raise ValueError(f"Option {name} wants {_WORDS[known[name]]}.")
    return found


_WORDS: dict[type, str] = {
    int: "a number from 1 to 10000",
    bool: "true or false",
    str: "a string",
    list: "a list of strings",
}


def _is_a(value: Any, wanted: type) -> bool:
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000
    if wanted is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return isinstance(value, wanted)


def _text(row: Mapping[str, Any]) -> Any:
    return row["TEXT"]


def _text_or_pair(row: Mapping[str, Any]) -> Any:
    return (row["TEXT"], row["TEXT_PAIR"]) if "TEXT_PAIR" in row else row["TEXT"]


def _json(name: str) -> Callable[[Sequence[Any]], Tensors]:
    """One JSON string a row."""

    def tensors(answers: Sequence[Any]) -> Tensors:
        return {name: strings([json.dumps(answer, ensure_ascii=False) for answer in answers])[:, None]}

    return tensors


def _embedding(answers: Sequence[Any]) -> Tensors:
    return {"EMBEDDING": np.stack(answers).astype(np.float32, copy=False)}


def _classes(answers: Sequence[Any]) -> Tensors:
    return {
        "LABELS": np.stack([strings([entry["label"] for entry in answer]) for answer in answers]),
        "SCORES": np.asarray([[entry["score"] for entry in answer] for answer in answers], np.float32),
    }


def _zero_shot(answers: Sequence[Any]) -> Tensors:
    return {
        "LABELS": np.stack([strings(answer["labels"]) for answer in answers]),
        "SCORES": np.asarray([answer["scores"] for answer in answers], np.float32),
    }


def _ranking(answers: Sequence[Any]) -> Tensors:
    return {
        "INDICES": _filled([[entry["index"] for entry in answer] for answer in answers], -1, np.int64),
        "SCORES": _filled([[entry["score"] for entry in answer] for answer in answers], 0, np.float32),
    }


def _sparse(answers: Sequence[Any]) -> Tensors:
    return {
        "TOKEN_IDS": _filled([[entry["token"] for entry in answer] for answer in answers], -1, np.int64),
        "TOKENS": _filled([strings([entry["token_str"] for entry in answer]) for answer in answers], b"", np.object_),
        "WEIGHTS": _filled([[entry["weight"] for entry in answer] for answer in answers], 0, np.float32),
    }


def _token_vectors(answers: Sequence[Any]) -> Tensors:
    found: Tensors = {
        "LENGTH": np.asarray([[len(answer["tokens"])] for answer in answers], np.int32),
        "TOKENS": _filled([strings(answer["tokens"]) for answer in answers], b"", np.object_),
    }
    for name in ("TOKEN_EMBEDDINGS", "HIDDEN_STATES", "ATTENTIONS"):
        if name.lower() in answers[0]:
            found[name] = _filled([answer[name.lower()] for answer in answers], 0, np.float32)
    return found


def _filled(rows: Sequence[Any], fill: Any, dtype: Any) -> Array:
    """Rows of one rank and unlike shapes as one array; what a row has not is `fill`."""
    arrays = [np.asarray(row, dtype) for row in rows]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    whole = np.full((len(arrays), *shape), fill, dtype)
    for place, array in enumerate(arrays):
        whole[(place, *(slice(size) for size in array.shape))] = array
    return whole


_TEXT = Input("TEXT")
_SINGLE_OR_PAIR = (_TEXT, Input("TEXT_PAIR", optional=True))
_TOP_K: dict[str, type] = {"top_k": int}
# The name of one of the model's prompts.
PROMPT = "prompt"
_PROMPT: dict[str, type] = {PROMPT: str}

WIRES: dict[str, Wire] = {
    "embedding": Wire(_SINGLE_OR_PAIR, (Output("EMBEDDING", "TYPE_FP32", FIRST),), _text_or_pair, _embedding, _PROMPT),
    "text-classification": Wire(
        _SINGLE_OR_PAIR,
        (Output("LABELS", "TYPE_STRING", FIRST), Output("SCORES", "TYPE_FP32", FIRST)),
        _text_or_pair,
        _classes,
    ),
    "zero-shot-classification": Wire(
        (_TEXT, Input("CANDIDATE_LABELS", many=True, brief=True)),
        (Output("LABELS", "TYPE_STRING", (-1,)), Output("SCORES", "TYPE_FP32", (-1,))),
        _text,
        _zero_shot,
        {"template": str, "multi_label": bool},
        {"CANDIDATE_LABELS": "labels"},
    ),
    "rerank": Wire(
        (Input("QUERY", brief=True), Input("DOCUMENTS", many=True)),
        (Output("INDICES", "TYPE_INT64", (-1,)), Output("SCORES", "TYPE_FP32", (-1,))),
        lambda row: (row["QUERY"], row["DOCUMENTS"]),
        _ranking,
        _TOP_K,
    ),
    "token-classification": Wire(
        (_TEXT,),
        (Output("ENTITIES", "TYPE_STRING"),),
        _text,
        _json("ENTITIES"),
        {"aggregation": str, "ignore": list, "stride": int},
    ),
    "question-answering": Wire(
        (Input("QUESTION", brief=True), Input("CONTEXT")),
        (Output("ANSWERS", "TYPE_STRING"),),
        lambda row: (row["QUESTION"], row["CONTEXT"]),
        _json("ANSWERS"),
        {"top_k": int, "longest": int, "stride": int, "no_answer": bool},
    ),
    "fill-mask": Wire((_TEXT,), (Output("FILLINGS", "TYPE_STRING"),), _text, _json("FILLINGS"), _TOP_K),
    "sparse-embedding": Wire(
        (_TEXT,),
        (
            Output("TOKEN_IDS", "TYPE_INT64", (-1,)),
            Output("TOKENS", "TYPE_STRING", (-1,)),
            Output("WEIGHTS", "TYPE_FP32", (-1,)),
        ),
        _text,
        _sparse,
        {**_TOP_K, **_PROMPT},
    ),
    "feature-extraction": Wire(
        _SINGLE_OR_PAIR,
        (
            Output("TOKEN_EMBEDDINGS", "TYPE_FP32", FIRST),
            Output("TOKENS", "TYPE_STRING", (-1,)),
            Output("LENGTH", "TYPE_INT32"),
            Output("HIDDEN_STATES", "TYPE_FP32", "hidden_states"),
            Output("ATTENTIONS", "TYPE_FP32", "attentions"),
        ),
        _text_or_pair,
        _token_vectors,
    ),
}
