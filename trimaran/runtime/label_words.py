"""Scores of words that a caller names for the mask of a text, and of labels that such words stand for.

It travels with a deployed fill-mask model. A template puts the mask beside a text, and each label has a few words. The
label whose words the model expects most at the mask is the text's class, with no head and no training:

    text      The striker scored twice.
    template  {} It is about {mask}.
    labels    sport: football, tennis     money: banks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .answers import Answering, Reader
from .text import Array, Row

LABEL_WORDS = "label_words"
# The output of the graph with the probability of every token at the first mask of a text.
MASK_SCORES = "mask_scores"
# Where the text and the mask go in a template.
TEXT_MARK, MASK_MARK = "{}", "{mask}"


def encodings_of(model: Answering, texts: Sequence[str], template: str | None) -> list[Any]:
    """The texts as the model reads them. Raises ValueError where a template has no place for the text or the mask."""
    if template is None:
        return model.encoder.encodings(texts)
    if template.count(TEXT_MARK) != 1 or template.count(MASK_MARK) != 1:
        raise ValueError(
            f"A template wants {TEXT_MARK} where the text goes and {MASK_MARK} where the mask goes, once each, "
            f"found {template[:80]!r}."
        )
    mask = model.reader.token(model.facts["mask_id"])
    before, after = template.replace(MASK_MARK, mask).split(TEXT_MARK)
    return model.encoder.in_template(texts, before, after)


def mask_scores(model: Answering, encodings: Sequence[Any]) -> Array:
    """The probability of every token at the mask of each text, `[texts, vocabulary]`. Raises ValueError."""
    masks = [list(encoding.ids).count(model.facts["mask_id"]) for encoding in encodings]
    for count in masks:
        if count != 1:
            raise ValueError(
                f"Words are scored at one mask, and the model read {count or 'none'} in a text. "
                f"Write {model.reader.token(model.facts['mask_id'])} once and early, or give a template."
            )
    outputs = model.outputs([Row(encoding.ids, encoding.type_ids) for encoding in encodings])
    if MASK_SCORES not in outputs:
        raise ValueError("The model was exported before words could be scored. Deploy it again from its weights.")
    return outputs[MASK_SCORES]


def word_id(reader: Reader, word: str) -> int:
    """The token of a word, found as transformers finds a target: in the vocabulary, else by tokenising it.

    transformers takes the first token of a word of several, with a warning. A caller of a server sees no warning, and
    the score would be that of another word, so it is refused.
    """
    known = reader.token_id(word)
    if known is not None:
        return known
    pieces = reader.pieces(word)
    if len(pieces) == 1 and pieces[0] != reader.unknown_id:
        return pieces[0]
    tokens = " ".join(map(reader.token, pieces)) or "nothing"
    raise ValueError(
        f"The word {word[:80]!r} is {len(pieces)} tokens of this model ({tokens[:200]}). "
        "A mask is one known token: choose another word."
    )


def label_scores(reader: Reader, scores: Array, label_words: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The labels of one text, best first: the mean probability of a label's words, as a share of all labels' means."""
    if not label_words or not all(label_words.values()):
        raise ValueError("label_words wants at least one word for each label, as {label: [words]}.")
    means = {
        label: float(np.mean(scores[[word_id(reader, word) for word in words]], dtype=np.float64))
        for label, words in label_words.items()
    }
    total = sum(means.values()) or 1.0
    return [
        {"label": label, "score": mean / total}
        for label, mean in sorted(means.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
