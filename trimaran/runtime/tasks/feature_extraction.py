"""One vector a token, and hidden states and attentions where the graph gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..text import SEQUENCE_AXES, Text
from ..wire import FIRST, TEXT_OR_PAIR, Answer, Output, ServedTask, Tensors, filled, strings, text_or_pair


def token_features(model: Answering, texts: Sequence[Text]) -> list[Answer]:
    """The tokens of each text with their vectors, and with hidden states and attentions where the graph gives them."""
    encodings, outputs = model.encoded(texts)
    # By number: a unigram tokenizer's own tokens show the text where the model saw an unknown one.
    answers: list[Answer] = [{"tokens": [model.reader.token(index) for index in row.ids]} for row in encodings]
    for name, array in outputs.items():
        axes = SEQUENCE_AXES[name]
        for answer, row in zip(answers, array, strict=True):
            size = len(answer["tokens"])
            answer[name] = row[tuple(slice(size if axis in axes else None) for axis in range(1, array.ndim))]
    return answers


def tensors(answers: Sequence[Answer]) -> Tensors:
    columns: Tensors = {
        "LENGTH": np.asarray([[len(answer["tokens"])] for answer in answers], np.int32),
        "TOKENS": filled([strings(answer["tokens"]) for answer in answers], b"", np.object_),
    }
    for name in ("TOKEN_EMBEDDINGS", "HIDDEN_STATES", "ATTENTIONS"):
        if name.lower() in answers[0]:
            columns[name] = filled([answer[name.lower()] for answer in answers], 0, np.float32)
    return columns


SERVED = ServedTask(
    name="feature-extraction",
    inputs=TEXT_OR_PAIR,
    outputs=(
        Output("TOKEN_EMBEDDINGS", "TYPE_FP32", FIRST),
        Output("TOKENS", "TYPE_STRING", (-1,)),
        Output("LENGTH", "TYPE_INT32"),
        Output("HIDDEN_STATES", "TYPE_FP32", "hidden_states"),
        Output("ATTENTIONS", "TYPE_FP32", "attentions"),
    ),
    item=text_or_pair,
    answer=token_features,
    tensors=tensors,
)
