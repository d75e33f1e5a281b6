"""The tokenizer of a served model, for what the gateway must know before it asks: token counts, ids, tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran.runtime.text import Text, prompt_words, prompted
from trimaran.serving.gateway.refusals import invalid

TOKENIZER_FILE = "tokenizer.json"
SERVING_FILE = "serving.json"
_PAIR_SEPARATOR = "|||"


def tokenizer_file(version: Path) -> Path:
    """The model's own file, or that of the tokenizing stage if the model is an ensemble."""
    own = version / TOKENIZER_FILE
    stage = version.parent.with_name(f"{version.parent.name}_tokenizer") / version.name / TOKENIZER_FILE
    return own if own.is_file() else stage


class TokenCount(NamedTuple):
    # The tokens that the model reads.
    tokens: int
    # The number of texts of which the model reads only the beginning.
    truncated: int


class Vocabulary:
    def __init__(self, version: Path) -> None:
        """`version` is a model's version folder. Raises OSError or ValueError when it is not one of ours."""
        from tokenizers import Tokenizer

        # Read here, so that a missing file is an OSError: the tokenizer raises a bare Exception.
        text = tokenizer_file(version).read_text(encoding="utf-8")
        self._tokenizer = Tokenizer.from_str(text)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._subword_prefix = str(json.loads(text)["model"].get("continuing_subword_prefix") or "")
        settings = json.loads((version / SERVING_FILE).read_text(encoding="utf-8"))
        self.longest = int(settings["profile"]["sequence"]["maximum"])
        # The files of older models have no prompts.
        tokenizer = settings.get("tokenizer", {})
        self.prompts: dict[str, str] = dict(tokenizer.get("prompts", {}))
        self._default_prompt = str(tokenizer.get("default_prompt", ""))

    def count(self, texts: Sequence[Text], *, whole: bool = False, prompt: str | None = None) -> TokenCount:
        """Counts what the model reads, with its default prompt or the named one. With `whole`, it reads long texts to
        their end.
        """
        if words := prompt_words(self.prompts, self._default_prompt, prompt):
            texts = [prompted(text, words) for text in texts]
        # A pair whose second part is empty is encoded as a single text.
        inputs = [text[0] if isinstance(text, tuple) and not text[1] else text for text in texts]
        lengths = [len(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(inputs)]
        if whole:
            return TokenCount(sum(lengths), 0)
        return TokenCount(
            sum(min(length, self.longest) for length in lengths), sum(length > self.longest for length in lengths)
        )

    def text_of_ids(self, ids: Sequence[int], index: int) -> str:
        """The text that the model reads as exactly these ids, with or without its special tokens around them."""
        if max(ids) < self._tokenizer.get_vocab_size():
            for inner in (ids, ids[1:-1], ids[:-1], ids[1:]):
                text = str(self._tokenizer.decode(list(inner), skip_special_tokens=False))
                bare = inner is ids and self._tokenizer.encode(text, add_special_tokens=False).ids == list(ids)
                if bare or self._tokenizer.encode(text).ids == list(ids):
                    return text
        raise invalid(
            f"The token ids at {index} are not what this model's tokenizer makes of any text. "
            "Send texts, or ids of its own vocabulary.",
            param="input",
        )

    def text_of_tokens(self, tokens: Sequence[str]) -> str:
        joined = " ".join(tokens)
        return joined.replace(f" {self._subword_prefix}", "") if self._subword_prefix else joined


def split_pair(text: str) -> Text:
    """`first ||| second` is a pair, as in bert-as-service."""
    first, separator, second = text.partition(_PAIR_SEPARATOR)
    return (first.strip(), second.strip()) if separator else text
