"""Queries and documents of a late-interaction model: cut at lengths of their own, and queries filled up.

A query of 7 tokens becomes 32 tokens with the expansion token behind it, usually the mask. The model gives a vector for
each of them, and they count when the query is compared with a document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

QUERY, DOCUMENT = "query", "document"
# Whoever judges a model gives texts of both sides at once: (text, the name of a prompt).
SidedText = str | tuple[str, str]
# (texts, name of the prompt, tokens at which they are cut) -> the tokenizer's encodings.
Encode = Callable[[Sequence[str], str | None, int], list[Any]]


def side_of(prompt: str | None) -> str:
    """Texts with the prompt `query` are queries, and all others documents."""
    return QUERY if prompt == QUERY else DOCUMENT


class Sides:
    def __init__(self, *, query: Mapping[str, Any], document: Mapping[str, Any], expansion_id: int) -> None:
        self._sides = {QUERY: query, DOCUMENT: document}
        self._expansion_id = expansion_id

    def encodings(self, texts: Sequence[SidedText], prompt: str | None, maximum: int, encode: Encode) -> list[Any]:
        """Encodings in the order of the texts. `maximum` is the longest sequence of the profile."""
        prompts = [prompt if isinstance(text, str) else text[1] for text in texts]
        encodings: list[Any] = [None] * len(texts)
        for name in dict.fromkeys(prompts):
            side = self._sides[side_of(name)]
            indices = [index for index, own in enumerate(prompts) if own == name]
            single = [text if isinstance(text, str) else text[0] for text in (texts[index] for index in indices)]
            rows = encode(single, name, min(side["maximum"] or maximum, maximum))
            for index, encoding in zip(indices, rows, strict=True):
                encoding.pad(side["width"], pad_id=self._expansion_id)
                encodings[index] = encoding
        return encodings
