"""The tokenizer of a served model, for what the gateway must know before it asks: token counts, ids, tokens."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.core.errors import first_line
from trimaran.core.serving_json import read_serving
from trimaran.runtime.cutting import TextCutter, encoded_batch, panics_as_errors
from trimaran.runtime.prompts import prompt_words, prompted
from trimaran.runtime.tasks.question_answering import STRIDE
from trimaran.runtime.text import Text
from trimaran.serving.gateway.refusals import invalid

TOKENIZER_FILE = "tokenizer.json"
_PAIR_SEPARATOR = "|||"
# Texts are tokenised in portions, so that a request far above the limit is refused early.
_PORTION_CHARACTERS = 1 << 16


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
    # The characters that have to be tokenised for it.
    characters: int


class Vocabulary:
    def __init__(self, version: Path) -> None:
        """`version` is a model's version folder. Raises OSError, ValueError or TrimaranError when it is not ours."""
        text = tokenizer_file(version).read_text(encoding="utf-8")
        self._tokenizer = _tokenizer_from(text)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._cutter = TextCutter(self._tokenizer)
        self._around = frozenset(self._tokenizer.encode("").ids)
        self._subword_prefix = str(json.loads(text)["model"].get("continuing_subword_prefix") or "")
        serving = read_serving(version)
        self.longest = serving.profile.sequence.maximum
        self.prompts = serving.tokenizer.prompts
        self._default_prompt = serving.tokenizer.default_prompt
        self._reads_the_end = serving.tokenizer.cut_side == "left"
        mask = serving.facts.get("mask_id")
        self._mask = self._tokenizer.id_to_token(int(mask)) if mask is not None else None

    def count(
        self,
        texts: Sequence[Text],
        *,
        most: int,
        whole: bool = False,
        prompt: str | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> TokenCount:
        """Counts what the model reads, with its default prompt or the named one. With `whole`, it reads long texts to
        their end. Stops where there are more than `most` tokens, or when nobody waits for the count any more.
        Raises Refusal (422) if the tokenizer cannot read a text.
        """
        words = prompt_words(self.prompts, self._default_prompt, prompt)
        tokens = truncated = characters = 0
        for portion in _portions([prompted(text, words) for text in texts] if words else texts):
            with _unreadable_refused():
                inputs = self._read_part(portion, whole=whole)
                encodings = encoded_batch(self._tokenizer.encode_batch_fast, inputs)
            lengths = [len(encoding.ids) for encoding in encodings]
            characters += sum(map(_characters, inputs))
            truncated += 0 if whole else sum(length > self.longest for length in lengths)
            if whole:
                tokens += sum(map(self._tokens_of_windows, inputs, encodings))
            else:
                tokens += sum(min(length, self.longest) for length in lengths)
            if tokens > most or is_over():
                break
        return TokenCount(tokens, truncated, characters)

    def _read_part(self, texts: Sequence[Text], *, whole: bool) -> list[Text]:
        """What is tokenised of each text. A pair whose second part is empty is encoded as a single text."""
        inputs = [text[0] if isinstance(text, tuple) and not text[1] else text for text in texts]
        if whole or self._reads_the_end:
            return inputs
        parts = [part for text in inputs for part in ((text,) if isinstance(text, str) else text)]
        cut = iter(self._cutter.beginnings(parts, self.longest))
        return [next(cut) if isinstance(text, str) else (next(cut), next(cut)) for text in inputs]

    def _tokens_of_windows(self, text: Text, encoding: Any) -> int:
        """What the model reads of a text or pair that is not cut. Each window of a long context has the question again:
        a question that leaves room for one token is read with every token of the context.
        """
        size: int = len(encoding.ids)
        if isinstance(text, str) or size <= self.longest:
            return size
        question = int(encoding.sequence_ids.count(0))
        special = int(self._tokenizer.num_special_tokens_to_add(is_pair=True))
        context, room = size - question - special, self.longest - question - special
        if room < 1:
            # The model refuses it.
            return size
        shared = min(STRIDE, room // 2)
        windows = 1 + -(-(context - room) // (room - shared))
        return context + windows * (question + special) + (windows - 1) * shared

    def tokens(
        self,
        texts: Sequence[str],
        *,
        prompt: str | None,
        special: bool,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[list[dict[str, Any]]]:
        """The tokens of each text after the prompt, as /tokenize answers them."""
        words = prompt_words(self.prompts, self._default_prompt, prompt)
        with _unreadable_refused():
            encodings = [
                self._tokenizer.encode(prompted(text, words) if words else text, add_special_tokens=special)
                for text in itertools.takewhile(lambda _: not is_over(), texts)
            ]
        return [
            [
                {"id": identity, "text": token, "special": bool(mark), "start": start, "stop": stop}
                for identity, token, mark, (start, stop) in zip(
                    encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True
                )
            ]
            for encoding in encodings
        ]

    def masks(self, text: str) -> int:
        """The places of a text for which a fill-mask model gives words, or more if it is cut."""
        return text.count(self._mask) if self._mask else 0

    def texts_of_ids(self, rows: Sequence[Sequence[int]], *, is_over: Callable[[], bool] = lambda: False) -> list[str]:
        """The text of each row. Raises Refusal (422) for ids that no text has."""
        waited_for = itertools.takewhile(lambda _: not is_over(), enumerate(rows))
        with _unreadable_refused():
            return [self.text_of_ids(ids, index) for index, ids in waited_for]

    def text_of_ids(self, ids: Sequence[int], index: int) -> str:
        """The text that the model reads as exactly these ids, with or without its special tokens around them."""
        if max(ids) < self._tokenizer.get_vocab_size():
            for inner in (ids[1:-1], ids[:-1], ids[1:]):
                text = str(self._tokenizer.decode(list(inner), skip_special_tokens=False))
                if self._tokenizer.encode(text).ids == list(ids):
                    return text
            text = str(self._tokenizer.decode(list(ids), skip_special_tokens=False))
            # The model puts its special tokens around a text: ids that hold some of them would be read with both.
            is_bare = self._around.isdisjoint(ids)
            if is_bare and self._tokenizer.encode(text, add_special_tokens=False).ids == list(ids):
                return text
        raise invalid(
            f"The token ids at {index} are not what this model's tokenizer makes of any text. "
            "Send texts, or ids of its own vocabulary.",
            param="input",
        )

    def text_of_tokens(self, tokens: Sequence[str]) -> str:
        joined = " ".join(tokens)
        return joined.replace(f" {self._subword_prefix}", "") if self._subword_prefix else joined


def _tokenizer_from(text: str) -> Any:
    """Raises ValueError: the library raises bare exceptions, which would hide the other models too."""
    from tokenizers import Tokenizer

    try:
        with panics_as_errors():
            return Tokenizer.from_str(text)
    except Exception as error:
        raise ValueError(f"it is damaged: {first_line(error)}") from error


@contextlib.contextmanager
def _unreadable_refused() -> Iterator[None]:
    """Raises Refusal (422) where the tokenizer cannot read a text."""
    try:
        with panics_as_errors():
            yield
    except ValueError as error:
        raise invalid(str(error)) from error


def _portions(texts: Sequence[Text]) -> Iterator[Sequence[Text]]:
    begin = characters = 0
    for index, text in enumerate(texts):
        characters += _characters(text)
        if characters > _PORTION_CHARACTERS or index == len(texts) - 1:
            yield texts[begin : index + 1]
            begin, characters = index + 1, 0


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def split_pair(text: str) -> Text:
    """`first ||| second` is a pair, as in bert-as-service."""
    first, separator, second = text.partition(_PAIR_SEPARATOR)
    return (first.strip(), second.strip()) if separator else text
