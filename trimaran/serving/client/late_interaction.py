"""Scores documents for a query by the token vectors of a feature-extraction model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimaran.core.late_interaction import maximum_similarities
from trimaran.serving.client import given
from trimaran.serving.client.calls import Ask, Model, Tensors, tokens


def score(model: Model, query: str, documents: Iterable[str]) -> Ask[list[float]]:
    """One score for each document, in their order."""
    ask = tokens(model, [given.string("query", query), *given.strings("documents", documents)])

    def join(parts: Sequence[Tensors]) -> list[float]:
        asked, *others = ask.join(parts)
        return [float(value) for value in maximum_similarities(asked.vectors, (text.vectors for text in others))]

    return Ask(ask.requests, ask.outputs, join)
