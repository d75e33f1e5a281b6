"""Which of several choices fits a text or a question best."""

from __future__ import annotations

from collections.abc import Sequence

from ..answers import Answering
from ..text import softmax
from ..wire import TEXT, Answer, Input, Output, ServedTask, best_first, indexed_columns


def choices(model: Answering, items: Sequence[tuple[str, Sequence[str]]]) -> list[Answer]:
    """The choices of each text with their probabilities, best first; items are (text, choices)."""
    return [best_first(softmax(scores)) if scores.size else [] for scores in model.pair_scores(items)]


SERVED = ServedTask(
    name="multiple-choice",
    inputs=(TEXT, Input("CHOICES", many=True)),
    outputs=(Output("BEST", "TYPE_INT64", (-1,)), Output("PROBABILITIES", "TYPE_FP32", (-1,))),
    item=lambda row: (row["TEXT"], row["CHOICES"]),
    answer=choices,
    tensors=indexed_columns("BEST", "PROBABILITIES"),
    encoded_rows=lambda item, keywords: len(item[1]),
)
