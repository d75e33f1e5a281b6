"""The most probable tokens for each mask of a text, or the scores of words and labels that the caller names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..answers import Answering
from ..label_words import LABEL_WORDS, encodings_of, label_scores, mask_scores, word_id
from ..text import Row
from ..wire import TEXT, TOP_K, Answer, Output, ServedTask, json_column, single_text

# Unless the caller says otherwise.
WORDS_A_MASK = 5


def fillings(
    model: Answering,
    texts: Sequence[str],
    *,
    top_k: int | None = None,
    targets: Sequence[str] | None = None,
    label_words: Mapping[str, Sequence[str]] | None = None,
    template: str | None = None,
) -> list[Answer]:
    """For each mask of each text, the most probable tokens; a text without a mask has none.

    With `targets`, the most probable of these words. With `label_words`, the labels of each text with their scores:
    one list a text in the place of one a mask. A `template` puts the mask beside each text.
    """
    if targets is not None and label_words is not None:
        raise ValueError("targets and label_words are both given. Give one of them.")
    encodings = encodings_of(model, texts, template)
    if label_words is not None:
        scores = mask_scores(model, encodings)
        return [label_scores(model.reader, row, label_words)[:top_k] for row in scores]
    if targets is not None:
        return _among(model, encodings, targets, top_k or WORDS_A_MASK)
    outputs = model.outputs([Row(encoding.ids, encoding.type_ids) for encoding in encodings])
    answers = []
    for encoding, scores, ids in zip(encodings, outputs["token_scores"], outputs["token_ids"], strict=True):
        masks = [position for position, index in enumerate(encoding.ids) if index == model.facts["mask_id"]]
        rows = []
        for position in masks:
            best = zip(scores[position][: top_k or WORDS_A_MASK], ids[position][: top_k or WORDS_A_MASK], strict=True)
            rows.append([_filling(model, encoding, position, i, score, alone=len(masks) == 1) for score, i in best])
        answers.append(rows)
    return answers


def _among(model: Answering, encodings: Sequence[Any], targets: Sequence[str], top_k: int) -> list[Answer]:
    if not targets:
        raise ValueError("targets wants at least one word.")
    ids = sorted({word_id(model.reader, word) for word in targets})
    answers = []
    for encoding, scores in zip(encodings, mask_scores(model, encodings), strict=True):
        position = list(encoding.ids).index(model.facts["mask_id"])
        best = sorted(ids, key=lambda index: -scores[index])[:top_k]
        answers.append([[_filling(model, encoding, position, i, scores[i], alone=True) for i in best]])
    return answers


def _filling(model: Answering, encoding: Any, position: int, index: int, score: float, *, alone: bool) -> Answer:
    """One token in the place of a mask, and the text with it."""
    sequence = [*encoding.ids[:position], int(index), *encoding.ids[position + 1 :]]
    return {
        "score": float(score),
        "token": int(index),
        "token_str": model.reader.text([int(index)]),
        "sequence": model.reader.text(sequence, skip_special=alone),
    }


SERVED = ServedTask(
    name="fill-mask",
    inputs=(TEXT,),
    outputs=(Output("FILLINGS", "TYPE_STRING"),),
    item=single_text,
    answer=fillings,
    tensors=json_column("FILLINGS"),
    options={**TOP_K, "targets": list, LABEL_WORDS: dict, "template": str},
)
