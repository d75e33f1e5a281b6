"""How a model's own library is asked the same as we are: one row for each task.

The library is sentence-transformers for what it has a class for, else a pipeline of transformers. Version 5 of
transformers has no pipeline for some tasks: its tokenizer and model are asked there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

# A library as `trimaran.export.library` loaded it: an object of sentence-transformers, a pipeline, or `Plain`.
Loaded = Any


class Plain(NamedTuple):
    """transformers' tokenizer and model, where it has no pipeline."""

    tokenizer: Any
    model: Any

    def logits(self, *texts: Any, **options: Any) -> Any:
        """The model's output for what the tokenizer makes of the texts, cut where the tokenizer cuts."""
        return self.model(**self.tokenizer(*texts, truncation=True, return_tensors="pt", **options))


@dataclass(frozen=True, kw_only=True)
class Library:
    """How one task's answers are asked of the library and compared with ours."""

    # The class of sentence-transformers, if it has one for the task.
    sentence: str = ""
    # The pipeline of transformers, if there is one.
    pipeline: str = ""
    # (library, one item of `served.answer`, options) -> its answer, in the form of ours.
    ask: Callable[..., Any]
    # An answer -> its numbers by name. A name that only one side has counts as 0 on the other.
    numbers: Callable[[Any], Mapping[str, Any]]
    # Options that texts are asked with, besides prompts.
    options: Sequence[Mapping[str, Any]] = ({},)
    # Options that a few texts are asked with. A model with prompts or a chat template is also proven with them.
    further_options: Sequence[Mapping[str, Any]] = ()
    # What usually differs if the tokens are the same and the numbers are not.
    cause: str = "the head"


def scores_by_label(answer: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(entry["label"]): entry["score"] for entry in answer}


def scores_by_index(answer: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {f"number {entry['index']}": entry["score"] for entry in answer}


def indexed(scores: Any) -> list[dict[str, Any]]:
    """Scores of several texts, in the form of our answers."""
    return [{"index": index, "score": float(score)} for index, score in enumerate(np.asarray(scores).ravel())]


def as_pipelines_read(item: Any) -> Any:
    """A pair as transformers' pipelines take it."""
    return item if isinstance(item, str) else {"text": item[0], "text_pair": item[1]}
