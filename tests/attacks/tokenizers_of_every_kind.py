"""Small trained tokenizers of each kind, with normalizers that shrink and grow a text."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "<mask>")


def _corpus() -> list[str]:
    chance = random.Random(1)
    return [
        " ".join("".join(chance.choice("abcdeé中.") for _ in range(chance.randint(1, 6))) for _ in range(12))
        for _ in range(200)
    ]


def _trained(tokenizer: Tokenizer, trainer: Any) -> Tokenizer:
    tokenizer.train_from_iterator(_corpus(), trainer)
    # As RoBERTa's mask: it swallows the spaces before it.
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _trained(
        tokenizer, trainers.WordPieceTrainer(vocab_size=120, special_tokens=[*SPECIAL], show_progress=False)
    )


def byte_level_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained(
        tokenizer,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=[*SPECIAL], show_progress=False),
    )


def unigram() -> Tokenizer:
    """As the conversions of sentencepiece: compatibility forms, runs of spaces made one, words marked."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return _trained(
        tokenizer,
        trainers.UnigramTrainer(vocab_size=120, unk_token="[UNK]", special_tokens=[*SPECIAL], show_progress=False),
    )


def spaces_as_words() -> Tokenizer:
    """As ALBERT and XLM-RoBERTa, without the step that makes one space of several: every space is a token."""
    tokenizer = unigram()
    tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def one_word() -> Tokenizer:
    """As Gemma: the whole text is one word, so nothing may be cut."""
    tokenizer = byte_level_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer


def digits_from_the_right() -> Tokenizer:
    """A pre-tokenizer that looks far ahead: groups of three digits, counted from the end of the number."""
    tokenizer = byte_level_bpe()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d{1,3}(?=(\d{3})*\b)"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "WordPiece": word_piece,
    "byte-level BPE": byte_level_bpe,
    "Unigram": unigram,
    "spaces as words": spaces_as_words,
    "one word": one_word,
    "digits from the right": digits_from_the_right,
}
