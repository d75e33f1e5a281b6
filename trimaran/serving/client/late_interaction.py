"""Scores documents for a query by the token vectors of a feature-extraction model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimaran.core.late_interaction import SIMILARITY, maximum_similarities
from trimaran.runtime.sides import DOCUMENT, QUERY
from trimaran.serving.client import given
from trimaran.serving.client.calls import tokens
from trimaran.serving.client.question import Ask, Model, NamedTensors


def score(model: Model, query: str, documents: Iterable[str]) -> Ask[list[float]]:
    """One score for each document, in their order. A late-interaction model reads the query as a query."""
    similarity = model.parameters.get(SIMILARITY, "")
    sides = (QUERY, DOCUMENT) if QUERY in model.prompts else (None, None)
    texts = given.strings("documents", documents)
    query_tokens = tokens(model, [given.string("query", query)], prompt=sides[0])
    others = tokens(model, texts, prompt=sides[1])

    def join(parts: Sequence[NamedTensors]) -> list[float]:
        (first,), rest = (
            query_tokens.join(parts[: len(query_tokens.requests)]),
            others.join(parts[len(query_tokens.requests) :]),
        )
        scores = maximum_similarities(first.vectors, (text.vectors for text in rest), similarity=similarity)
        return [float(value) for value in scores]

    return Ask((*query_tokens.requests, *others.requests), query_tokens.outputs, join)
