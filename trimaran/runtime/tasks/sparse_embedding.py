"""Weights over the vocabulary (SPLADE): the tokens that a text weighs, heaviest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..wire import PROMPT, TEXT, TOP_K, Answer, Output, ServedTask, Tensors, filled, single_text, strings


def sparse_vectors(
    model: Answering, texts: Sequence[str], *, top_k: int | None = None, prompt: str | None = None
) -> list[Answer]:
    """Tokens with a positive weight, heaviest first."""
    answers = []
    for weights in model.encoded(texts, prompt=prompt)[1]["weights"]:
        order = np.argsort(-weights, kind="stable")[: int((weights > 0).sum())][:top_k]
        answers.append(
            [{"token": int(i), "token_str": model.reader.token(int(i)), "weight": float(weights[i])} for i in order]
        )
    return answers


def tensors(answers: Sequence[Answer]) -> Tensors:
    return {
        "TOKEN_IDS": filled([[entry["token"] for entry in answer] for answer in answers], -1, np.int64),
        "TOKENS": filled([strings([entry["token_str"] for entry in answer]) for answer in answers], b"", np.object_),
        "WEIGHTS": filled([[entry["weight"] for entry in answer] for answer in answers], 0, np.float32),
    }


SERVED = ServedTask(
    name="sparse-embedding",
    inputs=(TEXT,),
    outputs=(
        Output("TOKEN_IDS", "TYPE_INT64", (-1,)),
        Output("TOKENS", "TYPE_STRING", (-1,)),
        Output("WEIGHTS", "TYPE_FP32", (-1,)),
    ),
    item=single_text,
    answer=sparse_vectors,
    tensors=tensors,
    options={**TOP_K, PROMPT: str},
)
