"""The most probable tokens for each mask of a text."""

from __future__ import annotations

from collections.abc import Sequence

from ..answers import Answering
from ..wire import TEXT, TOP_K, Answer, Output, ServedTask, json_column, single_text


def fillings(model: Answering, texts: Sequence[str], *, top_k: int = 5) -> list[Answer]:
    """For each mask of each text, the most probable tokens; a text without a mask has none."""
    encodings, outputs = model.encoded(texts)
    answers = []
    for encoding, scores, ids in zip(encodings, outputs["token_scores"], outputs["token_ids"], strict=True):
        masks = [position for position, index in enumerate(encoding.ids) if index == model.facts["mask_id"]]
        rows = []
        for position in masks:
            row = []
            for score, index in zip(scores[position][:top_k], ids[position][:top_k], strict=True):
                sequence = [*encoding.ids[:position], int(index), *encoding.ids[position + 1 :]]
                row.append(
                    {
                        "score": float(score),
                        "token": int(index),
                        "token_str": model.reader.text([int(index)]),
                        "sequence": model.reader.text(sequence, skip_special=len(masks) == 1),
                    }
                )
            rows.append(row)
        answers.append(rows)
    return answers


SERVED = ServedTask(
    name="fill-mask",
    inputs=(TEXT,),
    outputs=(Output("FILLINGS", "TYPE_STRING"),),
    item=single_text,
    answer=fillings,
    tensors=json_column("FILLINGS"),
    options=TOP_K,
)
