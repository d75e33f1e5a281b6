"""Which of several choices fits a text or a question best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..text import softmax
from ..wire import TEXT, Answer, Input, Output, ServedTask, Tensors, filled


def choices(model: Answering, items: Sequence[tuple[str, Sequence[str]]]) -> list[Answer]:
    """The choices of each text with their probabilities, best first; items are (text, choices)."""
    pairs = [(text, choice) for text, offered in items for choice in offered]
    scores = model.encoded(pairs)[1]["score"][:, 0] if pairs else np.zeros(0)
    answers, begin = [], 0
    for _, offered in items:
        probabilities = softmax(scores[begin : begin + len(offered)]) if offered else np.zeros(0)
        begin += len(offered)
        order = np.argsort(-probabilities, kind="stable")
        answers.append([{"index": int(index), "score": float(probabilities[index])} for index in order])
    return answers


def tensors(answers: Sequence[Answer]) -> Tensors:
    return {
        "BEST": filled([[entry["index"] for entry in answer] for answer in answers], -1, np.int64),
        "PROBABILITIES": filled([[entry["score"] for entry in answer] for answer in answers], 0, np.float32),
    }


SERVED = ServedTask(
    name="multiple-choice",
    inputs=(TEXT, Input("CHOICES", many=True)),
    outputs=(Output("BEST", "TYPE_INT64", (-1,)), Output("PROBABILITIES", "TYPE_FP32", (-1,))),
    item=lambda row: (row["TEXT"], row["CHOICES"]),
    answer=choices,
    tensors=tensors,
)
