"""An engine with all that stands around it, so that a task can answer texts: tokenizer, labels, row policy.

It travels with a deployed model beside `text.py`, and needs nothing but numpy and tokenizers.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .text import STRETCH, Array, Infer, InferMany, Row, Text, TextEncoder, infer_rows


class Reader:
    """The way back from token ids to text, by the model's own tokenizer; few tasks need it, so it is opened late."""

    def __init__(self, tokenizer_file: str) -> None:
        self._file = tokenizer_file

    @functools.cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(self._file)

    @functools.cached_property
    def _model(self) -> dict[str, Any]:
        return dict(json.loads(Path(self._file).read_text(encoding="utf-8"))["model"])

    @property
    def unknown_id(self) -> int | None:
        """A unigram model states its unknown token by number."""
        unknown = self._model.get("unk_token")
        token_id = self._model.get("unk_id") if unknown is None else self._tokenizer.token_to_id(unknown)
        return None if token_id is None else int(token_id)

    @property
    def marks_words(self) -> bool:
        """Only such a tokenizer marks which tokens continue a word."""
        return bool(self._model.get("continuing_subword_prefix"))

    def token_id(self, token: str) -> int | None:
        index = self._tokenizer.token_to_id(token)
        return None if index is None else int(index)

    def pieces(self, text: str) -> list[int]:
        """The tokens of a text, without special ones."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def common_words(self, count: int) -> list[str]:
        """The first words of the vocabulary, which are its most frequent ones in most models."""
        vocabulary = self._tokenizer.get_vocab()
        words = (token for token in sorted(vocabulary, key=vocabulary.__getitem__) if len(token) > 1)
        return list(itertools.islice((token for token in words if token.isalpha()), count))

    def token(self, index: int) -> str:
        return str(self._tokenizer.id_to_token(index))

    def joined(self, tokens: Sequence[str]) -> str:
        decoder = self._tokenizer.decoder
        return str(decoder.decode(list(tokens))) if decoder else " ".join(tokens)

    def text(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))


@dataclass(frozen=True)
class Answering:
    """An engine with all that a task needs to answer texts with it."""

    infer: Infer
    encoder: TextEncoder
    reader: Reader
    labels: Sequence[str] = ()
    # The artifact's `details["answers"]`: what the task must know of this model, such as the id of the mask.
    facts: Mapping[str, Any] = field(default_factory=dict)
    # How rows share a call.
    policy: str = "alone"
    maximum_batch: int = 1
    stretch: float = STRETCH
    infer_many: InferMany | None = None

    def outputs(self, rows: Sequence[Row]) -> dict[str, Array]:
        return infer_rows(
            self.infer,
            self.encoder,
            rows,
            policy=self.policy,
            maximum_batch=self.maximum_batch,
            stretch=self.stretch,
            infer_many=self.infer_many,
        )

    def pair_scores(self, items: Sequence[tuple[str, Sequence[str]]], **options: str | None) -> list[Array]:
        """For each (text, others) the graph's `score` of the text with each of the others."""
        pairs = [(text, other) for text, others in items for other in others]
        scores = self.encoded(pairs, always_pairs=True, **options)[1]["score"][:, 0] if pairs else np.zeros(0)
        ends = np.cumsum([len(others) for _, others in items])
        return np.split(scores, ends[:-1]) if items else []

    def encoded(
        self,
        texts: Sequence[Text],
        *,
        prompt: str | None = None,
        instruction: str | None = None,
        always_pairs: bool = False,
    ) -> tuple[list[Any], dict[str, Array]]:
        """The encodings of the texts and the engine's outputs for them."""
        encodings = self.encoder.encodings(texts, prompt=prompt, instruction=instruction, always_pairs=always_pairs)
        return encodings, self.outputs([Row(encoding.ids, encoding.type_ids) for encoding in encodings])
