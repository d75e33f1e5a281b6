"""The best spans of a context for a question, over all windows of a long context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..answers import Answering
from ..text import Array, Row
from ..wire import Answer, Input, Output, ServedTask, json_column

FoundSpan = dict[str, Any]
# Tokens that successive windows of a long context share.
STRIDE = 128
# The longest span in tokens, unless the caller says otherwise.
LONGEST = 15


@dataclass(frozen=True)
class Window:
    """A question with one piece of the context; `context_id` is the place of the context in the pair."""

    encoding: Any
    start: Array
    end: Array
    context_id: int


def answers(
    model: Answering,
    items: Sequence[tuple[str, str]],
    *,
    top_k: int = 1,
    longest: int = LONGEST,
    stride: int = STRIDE,
    no_answer: bool = False,
) -> list[Answer]:
    """The best spans of each context for its question; items are (question, context)."""
    spans = []
    for question, context in items:
        encodings = model.encoder.windows(question, context, stride=stride)
        outputs = model.outputs([Row(encoding.ids, encoding.type_ids) for encoding in encodings])
        windows = [
            Window(encoding, start[: len(encoding.ids)], end[: len(encoding.ids)], context_id=model.encoder.context_id)
            for encoding, start, end in zip(encodings, outputs["start_logits"], outputs["end_logits"], strict=True)
        ]
        spans.append(best_spans(context, windows, top_k=top_k, longest=longest, no_answer=no_answer))
    return spans


def best_spans(
    context: str, windows: Sequence[Window], *, top_k: int, longest: int, no_answer: bool
) -> list[FoundSpan]:
    """Spans of at most `longest` tokens by probability; with `no_answer`, the empty one competes.

    Probabilities are over the tokens of a window's context and its classification token, which stands for no answer;
    a tokenizer that has no such token leaves no room for "no answer".
    """
    score_of_span: dict[tuple[int, int], float] = {}
    empty = 1.0
    for window in windows:
        positions = [
            position for position, part in enumerate(window.encoding.sequence_ids) if part == window.context_id
        ]
        nothing = _classification_place(window.encoding)
        allowed = np.asarray([*positions, *nothing], np.intp)
        if not allowed.size:
            continue
        start, end = _probabilities(window.start[allowed]), _probabilities(window.end[allowed])
        empty = min(empty, float(start[-1] * end[-1]) if nothing else 0.0)
        scores = np.outer(start[: len(positions)], end[: len(positions)])
        scores = np.triu(scores) - np.triu(scores, k=longest)
        for position in np.argsort(-scores, axis=None, kind="stable")[:top_k]:
            first, last = divmod(int(position), len(positions))
            score = float(scores[first, last])
            offsets = window.encoding.offsets
            span = (offsets[positions[first]][0], offsets[positions[last]][1])
            if first <= last:
                score_of_span[span] = max(score_of_span.get(span, 0.0), score)
    spans: list[FoundSpan] = [
        {"score": score, "start": start, "end": end, "answer": context[start:end]}
        for (start, end), score in score_of_span.items()
    ]
    if no_answer:
        spans.append({"score": empty, "start": 0, "end": 0, "answer": ""})
    return sorted(spans, key=lambda span: -span["score"])[:top_k]


def _classification_place(encoding: Any) -> list[int]:
    """The first special token, or for a family that puts it on the right the last; none where there are none."""
    special = encoding.special_tokens_mask
    if not any(special):
        return []
    return [0 if special[0] else len(special) - 1]


def _probabilities(logits: Array) -> Array:
    wide = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(wide / wide.sum())


SERVED = ServedTask(
    name="question-answering",
    inputs=(Input("QUESTION", brief=True), Input("CONTEXT")),
    outputs=(Output("ANSWERS", "TYPE_STRING"),),
    item=lambda row: (row["QUESTION"], row["CONTEXT"]),
    answer=answers,
    tensors=json_column("ANSWERS"),
    options={"top_k": int, "longest": int, "stride": int, "no_answer": bool},
)
