"""What the peers are asked: single texts, and many at once of lengths as they come.

With a folder of public sets (`agnews/dev.tsv`, `stsb/sts-dev.csv`) those texts are asked; else the shipped corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from results import TextSet
from tokenizers import Tokenizer

from trimaran.core.corpus import digest_of_texts
from trimaran.core.samples import Shape

SHORT, LONG, MANY = 16, 128, 256
MAXIMUM = 256


def text_sets(
    model: Path, corpus: Sequence[str], data: Path | None, *, many: int = MANY
) -> tuple[tuple[TextSet, tuple[str, ...]], ...]:
    """A short text, a long one, and `many` at once of each source; a shape counts the longest's tokens."""
    sources = public_sources(data) if data else {"texts of the shipped corpus": tuple(corpus)}
    alone = {
        "one short text": (min(corpus, key=lambda text: abs(tokens_of(model, text) - SHORT)),),
        "one long text": (_joined_to(model, corpus, LONG),),
    }
    together = {f"{min(many, len(texts))} {name}": _drawn(texts, many) for name, texts in sources.items()}
    found = tuple((_set(model, words, texts), texts) for words, texts in {**alone, **together}.items())
    shapes = [one.shape for one, _ in found]
    assert len(set(shapes)) == len(shapes), f"two sets of texts have one shape: {shapes}"
    return found


def public_sources(data: Path) -> dict[str, tuple[str, ...]]:
    news = [line.rpartition("\t")[0] for line in _lines(data / "agnews" / "dev.tsv")]
    pairs = [line.split("\t") for line in _lines(data / "stsb" / "sts-dev.csv")]
    sentences = [sentence for pair in pairs for sentence in pair[5:7]]
    return {
        "STS-B sentences": tuple(dict.fromkeys(filter(None, sentences))),
        "AG News texts": tuple(dict.fromkeys(filter(None, news))),
    }


def tokens_of(model: Path, text: str) -> int:
    return min(MAXIMUM, len(_tokenizer(model).encode(text).ids))


def _set(model: Path, words: str, texts: tuple[str, ...]) -> TextSet:
    lengths = [tokens_of(model, text) for text in texts]
    shape = Shape(batch=len(texts), sequence=max(lengths))
    return TextSet(shape=shape, words=words, tokens=sum(lengths), digest=digest_of_texts(texts))


def _drawn(texts: Sequence[str], many: int) -> tuple[str, ...]:
    return tuple(texts[int(i)] for i in np.random.default_rng(7).permutation(len(texts))[:many])


def _joined_to(model: Path, texts: Sequence[str], tokens: int) -> str:
    """Texts one after the other, cut at a word, so that there are about this many tokens."""
    words = " ".join(texts[:40]).split()
    low, high = 1, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens_of(model, " ".join(words[:middle])) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@cache
def _tokenizer(model: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
