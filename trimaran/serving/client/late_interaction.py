"""Scores documents for a query by the token vectors of a feature-extraction model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from trimaran.core.late_interaction import SIMILARITY, maximum_similarities
from trimaran.runtime.sides import DOCUMENT, QUERY
from trimaran.serving.client import given
from trimaran.serving.client.calls import tokens
from trimaran.serving.client.question import Ask, Model, NamedTensors
from trimaran.serving.client.results import Embeddings


class Compared(NamedTuple):
    """The token vectors of a query and of documents, and how the model compares them."""

    query: Embeddings
    documents: list[Embeddings]
    similarity: str

    @property
    def products(self) -> int:
        """The numbers that have to be multiplied."""
        return self.query.size * sum(map(len, self.documents))

    def scores(self, is_over: Callable[[], bool] = lambda: False) -> list[float]:
        """One for each document, in their order. Ends early when nobody waits for them any more."""
        documents = itertools.takewhile(lambda _: not is_over(), self.documents)
        return [float(score) for score in maximum_similarities(self.query, documents, similarity=self.similarity)]


def vectors(model: Model, query: str, documents: Iterable[str]) -> Ask[Compared]:
    """What is compared. A late-interaction model reads the query as a query."""
    similarity = model.parameters.get(SIMILARITY, "")
    sides = (QUERY, DOCUMENT) if QUERY in model.prompts else (None, None)
    texts = given.strings("documents", documents)
    query_tokens = tokens(model, [given.string("query", query)], prompt=sides[0])
    others = tokens(model, texts, prompt=sides[1])

    def join(parts: Sequence[NamedTensors]) -> Compared:
        (first,), rest = (
            query_tokens.join(parts[: len(query_tokens.requests)]),
            others.join(parts[len(query_tokens.requests) :]),
        )
        return Compared(first.vectors, [text.vectors for text in rest], similarity)

    return Ask((*query_tokens.requests, *others.requests), query_tokens.outputs, join, keep=query_tokens.keep)
