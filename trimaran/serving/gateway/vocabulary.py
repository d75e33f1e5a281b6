"""A served model's own tokenizer, for what must be known before the model is asked: counts, limits, ids, tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.runtime.text import Text, prompt_words, prompted
from trimaran.serving.gateway.refusals import invalid

TOKENIZER_FILE = "tokenizer.json"
SERVING_FILE = "serving.json"
_PAIR = "|||"


def tokenizer_file(version: Path) -> Path:
    """The model's own, or where it is an ensemble its tokenising stage's."""
    own = version / TOKENIZER_FILE
    stage = version.parent.with_name(f"{version.parent.name}_tokenizer") / version.name / TOKENIZER_FILE
    return own if own.is_file() else stage


class Counted(NamedTuple):
    """`tokens` that the model reads, and how many texts it reads only the beginning of."""

    tokens: int
    cut: int


class Vocabulary:
    def __init__(self, version: Path) -> None:
        """`version` is a model's version folder. Raises OSError or ValueError when it is not one of ours."""
        from tokenizers import Tokenizer

        # Read here, so that a missing file is an OSError: the tokenizer's own error is a bare Exception.
        text = tokenizer_file(version).read_text(encoding="utf-8")
        self._tokenizer = Tokenizer.from_str(text)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._glue = str(json.loads(text)["model"].get("continuing_subword_prefix") or "")
        settings = json.loads((version / SERVING_FILE).read_text(encoding="utf-8"))
        self.longest = int(settings["profile"]["sequence"]["maximum"])
        # Models that were laid out before there were prompts say nothing of them.
        self.prompts: dict[str, str] = dict(settings["tokenizer"].get("prompts", {}))
        self._default_prompt = str(settings["tokenizer"].get("default_prompt", ""))

    def counted(self, texts: Sequence[Text], *, whole: bool = False, prompt: str | None = None) -> Counted:
        """Counts as the model reads them, with its default prompt or the named one. With `whole`, long texts are read
        to their end.
        """
        if words := prompt_words(self.prompts, self._default_prompt, prompt):
            texts = [prompted(text, words) for text in texts]
        lengths = [len(found.ids) for found in self._encoded(texts)]
        if whole:
            return Counted(sum(lengths), 0)
        return Counted(
            sum(min(length, self.longest) for length in lengths), sum(length > self.longest for length in lengths)
        )

    def text_of_ids(self, ids: Sequence[int], place: int) -> str:
        """The text that the model reads as exactly these ids, with or without its special tokens around them."""
        if max(ids) < self._tokenizer.get_vocab_size():
            for inner in (ids, ids[1:-1], ids[:-1], ids[1:]):
                text = str(self._tokenizer.decode(list(inner), skip_special_tokens=False))
                bare = inner is ids and self._tokenizer.encode(text, add_special_tokens=False).ids == list(ids)
                if bare or self._tokenizer.encode(text).ids == list(ids):
                    return text
        raise invalid(
            f"The token ids at {place} are not what this model's tokenizer makes of any text. "
            "Send texts, or ids of its own vocabulary.",
            param="input",
        )

    def text_of_tokens(self, tokens: Sequence[str]) -> str:
        joined = " ".join(tokens)
        return joined.replace(f" {self._glue}", "") if self._glue else joined

    def _encoded(self, texts: Sequence[Text]) -> list[Any]:
        given = [text[0] if isinstance(text, tuple) and not text[1] else text for text in texts]
        return list(self._tokenizer.encode_batch_fast(given))


def parted(text: str) -> Text:
    """`first ||| second` is a pair, as bert-as-service has it."""
    first, mark, second = text.partition(_PAIR)
    return (first.strip(), second.strip()) if mark else text
