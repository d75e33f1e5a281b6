"""Cuts long texts before they are tokenised, without a change to their first tokens.

It travels with a deployed model beside `text.py`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Pre-tokenizers and normalizers that look only at neighbouring characters: a cut changes only the words beside it.
# `Replace` is checked by its pattern.
_LOCAL = {
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Whitespace",
    "WhitespaceSplit", "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
    "Replace", "Strip", "StripAccents",
}  # fmt: skip
_RUN_OF_SPACES = re.compile(r"(\\s| )(\+|\{\d+,\})")
# Characters that are tried for each token that is needed. English takes four or five.
_CHARACTERS_A_TOKEN = 8
# Words that may be read differently without the characters behind the cut.
_WORDS_BESIDE_A_CUT = 3


class TextCutter:
    """Finds how much of a text has to be tokenised.

    A token can span any number of characters, such as an unknown word or removed accents. So the beginning of a text is
    tokenised to see how many tokens it has. A cut changes only the words beside it: the tokens of earlier words are
    those of the whole text. A text whose beginning has too few of them stays whole.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        components = _components(tokenizer.normalizer) + _components(tokenizer.pre_tokenizer)
        patterns = [component["pattern"] for component in components if component["type"] == "Replace"]
        # Where truncation keeps the end of a text, nothing can be cut from it.
        keeps_beginning = (tokenizer.truncation or {}).get("direction", "right") == "right"
        self._can_cut = (
            keeps_beginning
            and {component["type"] for component in components} <= _LOCAL
            and all("String" in pattern or _RUN_OF_SPACES.fullmatch(pattern["Regex"]) for pattern in patterns)
        )
        # A cut through an added token, or through what is replaced, leaves at most one word for each character.
        spans = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        spans += [pattern.get("String", "") for pattern in patterns]
        self._words_at_cut = _WORDS_BESIDE_A_CUT + max(map(len, spans), default=0)

    def beginnings(self, texts: Sequence[str], tokens: int) -> list[str]:
        """The texts, long ones cut. A cut text has the same first `tokens` tokens as the whole text, and more."""
        cut = list(texts)
        for size in (_CHARACTERS_A_TOKEN * tokens, 8 * _CHARACTERS_A_TOKEN * tokens) if self._can_cut else ():
            long = [index for index, text in enumerate(cut) if len(text) == len(texts[index]) > 2 * size]
            prefixes = [texts[index][:size] for index in long]
            for index, prefix, parts in zip(long, prefixes, self._encodings(prefixes), strict=True):
                if self._settled(parts, prefix) > tokens:
                    cut[index] = prefix
        return cut

    def cut(self, texts: Sequence[str | tuple[str, str]], maximum: int) -> list[str | tuple[str, str]]:
        """Texts and pairs without what truncation to `maximum` tokens drops from their ends.

        Of a pair, truncation drops tokens of the longer text first.
        """
        parts = [part for text in texts for part in ((text,) if isinstance(text, str) else text)]
        if max(map(len, parts), default=0) <= 2 * _CHARACTERS_A_TOKEN * maximum:
            return list(texts)
        short = iter(self.beginnings(parts, maximum))
        shorter: list[str | tuple[str, str]] = [
            next(short) if isinstance(text, str) else (next(short), next(short)) for text in texts
        ]
        if (maximum - self._tokenizer.num_special_tokens_to_add(is_pair=True)) % 2 == 0:
            return shorter
        # An odd token goes to the longer text, which is left whole where it might not stay the longer one.
        for index, (text, beginning) in enumerate(zip(texts, shorter, strict=True)):
            if isinstance(text, str) or beginning == text:
                continue
            whole = [part for part, cut in zip(text, beginning, strict=True) if len(part) == len(cut)]
            if not whole or self._count(whole[0]) > maximum:
                second_is_longer = self._count(text[0]) <= self._count(text[1])
                shorter[index] = (beginning[0], text[1]) if second_is_longer else (text[0], beginning[1])
        return shorter

    def _encodings(self, texts: Sequence[str]) -> list[list[Any]]:
        """Each text's encoding without special tokens, with what the tokenizer's own truncation cut off."""
        encodings = encoded_batch(self._tokenizer.encode_batch, texts, add_special_tokens=False)
        return [[encoding, *encoding.overflowing] for encoding in encodings]

    def _count(self, text: str) -> int:
        """The tokens of a whole text, without special ones."""
        return sum(len(part.ids) for part in self._encodings([text])[0])

    def _settled(self, parts: Sequence[Any], text: str) -> int:
        """The number of tokens that do not depend on the characters behind this text."""
        words = [word for part in parts for word in part.word_ids]
        offsets = [offset for part in parts for offset in part.offsets]
        settled: int = sum(word <= words[-1] - self._words_at_cut for word in words)
        # An added token behind the cut may swallow the spaces before it.
        while settled and not text[slice(*offsets[settled - 1])].strip():
            settled -= 1
        return settled


def shortened(encoded: Callable[[Sequence[str]], list[Any]], text: str, before: str, after: str, maximum: int) -> Any:
    """The encoding of as much of a text as fits between two strings."""
    [alone], [around] = encoded([text]), encoded([before + after])
    ends = [end for begin, end in alone.offsets if end > begin]
    # Words beside a cut may be read as more tokens than before, so fewer tokens are tried until all of it fits.
    for size in range(min(maximum - len(around), len(ends)), -1, -1):
        [encoding] = encoded([before + text[: ends[size - 1] if size else 0] + after])
        if not encoding.overflowing:
            return encoding
    raise ValueError(f"The template alone has more than the {maximum} tokens that the model reads. Shorten it.")


def encoded_batch(encode: Callable[..., Any], texts: Sequence[Any], **options: Any) -> list[Any]:
    with panics_as_errors():
        return list(encode(list(texts), **options))


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises ValueError where the tokenizer panics, which is no Exception: it would end more than its own request."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
            raise
        raise ValueError("The tokenizer cannot read this text.") from error


def _components(part: Any) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as its file describes it; those of a sequence one by one."""
    described = part if isinstance(part, dict) else json.loads(part.__getstate__()) if part else {}
    parts = described.get("normalizers") or described.get("pretokenizers") or ()
    return [component for inner in parts for component in _components(inner)] or [described] * bool(described)
