"""Labels of a text with their scores, best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..text import Text, softmax
from ..wire import FIRST, TEXT_OR_PAIR, Answer, Output, ServedTask, labels_and_scores, text_or_pair


def classes(model: Answering, texts: Sequence[Text], *, top_k: int | None = None) -> list[Answer]:
    """Labels and scores, best first. The output's name says whether its numbers still want a softmax."""
    outputs = model.encoded(texts)[1]
    scores = softmax(outputs["logits"]) if "logits" in outputs else next(iter(outputs.values()))
    order = np.argsort(-scores, axis=-1, kind="stable")[:, :top_k]
    return [
        [{"label": model.labels[index], "score": float(row[index])} for index in best]
        for row, best in zip(scores, order, strict=True)
    ]


SERVED = ServedTask(
    name="text-classification",
    inputs=TEXT_OR_PAIR,
    outputs=(Output("LABELS", "TYPE_STRING", FIRST), Output("SCORES", "TYPE_FP32", FIRST)),
    item=text_or_pair,
    answer=classes,
    tensors=labels_and_scores,
)
