"""One vector a token, and hidden states and attentions where the graph gives them.

A late-interaction model gives the vectors of the tokens that are compared: a query's with its expansion, a document's
without the tokens that are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..sides import side_of
from ..text import SEQUENCE_AXES, Text
from ..wire import FIRST, PROMPT, TEXT_OR_PAIR, Answer, Output, ServedTask, Tensors, filled, strings, text_or_pair


def token_features(model: Answering, texts: Sequence[Text], *, prompt: str | None = None) -> list[Answer]:
    """The tokens of each text with their vectors, and with hidden states and attentions where the graph gives them.

    `prompt` is the side of a late-interaction model: `query`, or by default `document`.
    """
    if model.encoder.sides and not all(isinstance(text, str) for text in texts):
        raise ValueError("This model reads single texts, queries and documents, and no pairs.")
    encodings, outputs = model.encoded(texts, prompt=prompt)
    # By number: a unigram tokenizer's own tokens show the text where the model saw an unknown one.
    answers: list[Answer] = [{"tokens": [model.reader.token(index) for index in row.ids]} for row in encodings]
    for name, array in outputs.items():
        axes = SEQUENCE_AXES[name]
        for answer, row in zip(answers, array, strict=True):
            size = len(answer["tokens"])
            answer[name] = row[tuple(slice(size if axis in axes else None) for axis in range(1, array.ndim))]
    skipped = model.facts.get("skipped_ids", {}).get(side_of(prompt))
    return (
        [_without(answer, row.ids, skipped) for answer, row in zip(answers, encodings, strict=True)]
        if skipped
        else answers
    )


def _without(answer: Answer, ids: Sequence[int], skipped: Sequence[int]) -> Answer:
    kept = np.flatnonzero(~np.isin(ids, skipped))
    tokens = answer["tokens"]
    return {"tokens": [tokens[index] for index in kept], "token_embeddings": answer["token_embeddings"][kept]}


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
    options={PROMPT: str},
)
