"""Whether a second text follows a first one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..wire import TEXT, Answer, Input, Output, ServedTask, Tensors


def follows(model: Answering, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
    """The probability of each pair that its second text follows the first."""
    return [float(row[0]) for row in model.encoded(pairs)[1]["label_probabilities"]]


def tensors(answers: Sequence[Answer]) -> Tensors:
    return {"FOLLOWS": np.asarray(answers, np.float32)[:, None]}


SERVED = ServedTask(
    name="next-sentence",
    inputs=(TEXT, Input("NEXT")),
    outputs=(Output("FOLLOWS", "TYPE_FP32"),),
    item=lambda row: (row["TEXT"], row["NEXT"]),
    answer=follows,
    tensors=tensors,
)
