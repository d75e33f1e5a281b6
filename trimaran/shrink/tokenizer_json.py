"""Leaves tokens out of a tokenizer, so that every text whose tokens stay is read as before.

Why leaving others out changes nothing for such a text:

    WordPiece, WordLevel   the longest token that fits is taken; it is still there, and still the longest
    BPE                    merges are applied in order of rank; those that the text needs are kept, in their order
    Unigram                the best path is taken; it is still there, and no other became better

Single characters and bytes always stay, so that every text can still be read. BERT's rules put Chinese characters and
punctuation in words of their own. Their tokens for the inside of a word ("##中", "##!") never occur, and do not stay.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimaran.core.errors import UnavailableError

# What tokenizers put before or after the characters of a token.
_MARKS = re.compile(r"^(##|▁|Ġ)|</w>$")
_BYTE = re.compile(r"^<0x[0-9A-F]{2}>$")
# Some families count positions from the id of padding on (RoBERTa, MPNet): a small id keeps its number.
_SMALL_ID = 16


class UnknownTokenizer(UnavailableError):
    """A kind of tokenizer that cannot be trimmed."""


def kept_ids(tokenizer: Mapping[str, Any], used: Iterable[int], *, pad_id: int) -> list[int]:
    """The ids that stay, ascending: those that are `used`, special ones, single characters, and what they are made of.

    `tokenizer` is the content of a `tokenizer.json`. The new id of a token is its place in the list.
    """
    model = tokenizer["model"]
    tokens = _tokens(model)
    kept = set(used) | {token["id"] for token in tokenizer["added_tokens"]}
    characters = {token for token in tokens if _is_character(token)}
    kept |= {tokens[token] for token in characters - _never_inside(tokenizer, characters)}
    if model.get("unk_token"):
        kept.add(tokens[model["unk_token"]])
    if pad_id < _SMALL_ID:
        kept |= set(range(pad_id + 1))
    if model["type"] == "BPE":
        names = {token_id: token for token, token_id in tokens.items()}
        ranks = {pair: rank for rank, pair in enumerate(_merges(model))}
        parts = {part for token_id in kept if token_id in names for part in _parts(names[token_id], ranks, model)}
        kept |= {tokens[part] for part in parts if part in tokens}
    if model["type"] == "Unigram":
        scores = [score for _, score in model["vocab"]]
        # An unknown character costs a fixed sum less than the worst token: that token stays.
        kept |= {model["unk_id"], scores.index(min(scores))} - {None}
    return sorted(kept)


def trimmed(tokenizer: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """The content of a `tokenizer.json` with these tokens only, numbered anew."""
    new_id = {old: new for new, old in enumerate(kept)}
    added = [{**token, "id": new_id[token["id"]]} for token in tokenizer["added_tokens"]]
    padding = tokenizer.get("padding")
    return {
        **tokenizer,
        "added_tokens": added,
        "model": _trimmed_model(tokenizer["model"], new_id),
        "post_processor": _renumbered(tokenizer.get("post_processor"), new_id),
        "padding": {**padding, "pad_id": new_id[padding["pad_id"]]} if padding else padding,
    }


def _trimmed_model(model: Mapping[str, Any], new_id: Mapping[int, int]) -> dict[str, Any]:
    if model["type"] == "Unigram":
        vocabulary = [entry for token_id, entry in enumerate(model["vocab"]) if token_id in new_id]
        return {**model, "vocab": vocabulary, "unk_id": new_id.get(model["unk_id"])}
    tokens = {token: new_id[old] for token, old in model["vocab"].items() if old in new_id}
    changes: dict[str, Any] = {"vocab": tokens}
    if model["type"] == "BPE":
        changes["merges"] = [list(pair) for pair in _merges(model) if {*pair, _joined(pair, model)} <= tokens.keys()]
    return {**model, **changes}


def _tokens(model: Mapping[str, Any]) -> dict[str, int]:
    match model["type"]:
        case "WordPiece" | "WordLevel" | "BPE":
            return dict(model["vocab"])
        case "Unigram":
            return {token: token_id for token_id, (token, _) in enumerate(model["vocab"])}
        case kind:
            raise UnknownTokenizer(f"A tokenizer of the kind {kind} cannot be trimmed.")


def _is_character(token: str) -> bool:
    return len(_MARKS.sub("", token)) <= 1 or _BYTE.match(token) is not None


def _never_inside(tokenizer: Mapping[str, Any], characters: Iterable[str]) -> set[str]:
    """The tokens for a character inside a word that BERT's rules never leave there, whatever stands beside it."""
    model, rules = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    normalizer = (tokenizer.get("normalizer") or {}).get("type", "BertNormalizer")
    if (model["type"], rules.get("type"), normalizer) != ("WordPiece", "BertPreTokenizer", "BertNormalizer"):
        return set()
    from tokenizers import Tokenizer

    reader, prefix = Tokenizer.from_str(json.dumps(tokenizer)), str(model["continuing_subword_prefix"])

    def stays_inside(character: str) -> bool:
        text = f"a{character}a"
        words = reader.pre_tokenizer.pre_tokenize_str(
            reader.normalizer.normalize_str(text) if reader.normalizer else text
        )
        return any(character in word[1:] for word, _ in words)

    inside = {token: token.removeprefix(prefix) for token in characters if token.startswith(prefix)}
    return {token for token, character in inside.items() if character and not stays_inside(character)}


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Older files write a merge as one string."""
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
    return [(left, right) for left, right in pairs]


def _joined(pair: tuple[str, str], model: Mapping[str, Any]) -> str:
    """The token that a merge makes. A continuing part is written with a prefix, which the whole has only once."""
    prefix = model.get("continuing_subword_prefix") or ""
    return pair[0] + pair[1].removeprefix(prefix)


def _parts(token: str, ranks: Mapping[tuple[str, str], int], model: Mapping[str, Any]) -> set[str]:
    """Every token that is made on the way to this one, by merging its characters in the order of the ranks."""
    suffix = model.get("end_of_word_suffix") or ""
    body = token.removesuffix(suffix) if suffix else token
    symbols = [*body[:-1], body[-1:] + token[len(body) :]]
    parts = set(symbols)
    while len(symbols) > 1:
        pairs = enumerate(itertools.pairwise(symbols))
        known = [(ranks[pair], index) for index, pair in pairs if pair in ranks]
        if not known:
            break
        _, index = min(known)
        symbols[index : index + 2] = [_joined((symbols[index], symbols[index + 1]), model)]
        parts.add(symbols[index])
    return parts


def _renumbered(part: Any, new_id: Mapping[int, int]) -> Any:
    """A post-processor names ids as `ids: [101]`, or as `sep: ["[SEP]", 102]`."""
    if isinstance(part, list):
        return [_renumbered(item, new_id) for item in part]
    if not isinstance(part, dict):
        return part
    renumbered = {key: _renumbered(value, new_id) for key, value in part.items()}
    if isinstance(part.get("ids"), list):
        renumbered["ids"] = [new_id[old] for old in part["ids"]]
    for key in ("sep", "cls"):
        if isinstance(part.get(key), list):
            renumbered[key] = [part[key][0], new_id[part[key][1]]]
    return renumbered
