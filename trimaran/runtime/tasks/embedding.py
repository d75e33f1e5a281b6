"""One vector a text: pooling and normalisation are inside the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..text import Text
from ..wire import FIRST, PROMPT, TEXT_OR_PAIR, Answer, Output, ServedTask, Tensors, text_or_pair


def embeddings(model: Answering, texts: Sequence[Text], *, prompt: str | None = None) -> list[Answer]:
    """`prompt` names one of the model's prompts; by default its default one, if it has one."""
    return list(model.encoded(texts, prompt=prompt)[1]["embedding"])


def tensors(answers: Sequence[Answer]) -> Tensors:
    return {"EMBEDDING": np.stack(answers).astype(np.float32, copy=False)}


SERVED = ServedTask(
    name="embedding",
    inputs=TEXT_OR_PAIR,
    outputs=(Output("EMBEDDING", "TYPE_FP32", FIRST),),
    item=text_or_pair,
    answer=embeddings,
    tensors=tensors,
    options={PROMPT: str},
)
