"""Labels that the caller names, each tried as a hypothesis of an NLI head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..answers import Answering
from ..text import softmax
from ..wire import TEXT, Answer, Input, Output, ServedTask, Tensors, single_text, strings

# Where a label goes in a template.
LABEL_MARK = "{}"


def zero_shot(
    model: Answering,
    texts: Sequence[str],
    *,
    labels: Sequence[str],
    template: str = "This example is {}.",
    multi_label: bool = False,
) -> list[Answer]:
    """Scores of entailment for each label, best first."""
    hypotheses = hypotheses_of(template, labels)
    rows = [row for text in texts for row in model.encoder.premise_rows(text, hypotheses)]
    logits = model.outputs(rows)["logits"].astype(np.float64).reshape(len(texts), len(labels), -1)
    entailment = logits[..., model.facts["entailment"]]
    if multi_label or len(labels) == 1:
        scores = softmax(np.stack([logits[..., model.facts["contradiction"]], entailment], axis=-1))[..., 1]
    else:
        scores = softmax(entailment)
    orders = np.argsort(-scores, axis=-1, kind="stable")
    return [
        {"labels": [labels[index] for index in order], "scores": [float(row[index]) for index in order]}
        for row, order in zip(scores, orders, strict=True)
    ]


def hypotheses_of(template: str, labels: Sequence[str]) -> list[str]:
    """The template with each label in its place. Raises ValueError.

    It is not read as Python reads a format: `{:1000000000}` would be a label with a billion spaces.
    """
    before, mark, after = template.partition(LABEL_MARK)
    if not labels or not mark or any(sign in before + after for sign in "{}"):
        raise ValueError(f"Zero-shot wants labels, and a template with {LABEL_MARK} once, where a label goes.")
    return [before + label + after for label in labels]


def tensors(answers: Sequence[Answer]) -> Tensors:
    return {
        "LABELS": np.stack([strings(answer["labels"]) for answer in answers]),
        "SCORES": np.asarray([answer["scores"] for answer in answers], np.float32),
    }


SERVED = ServedTask(
    name="zero-shot-classification",
    inputs=(TEXT, Input("CANDIDATE_LABELS", many=True, brief=True)),
    outputs=(Output("LABELS", "TYPE_STRING", (-1,)), Output("SCORES", "TYPE_FP32", (-1,))),
    item=single_text,
    answer=zero_shot,
    tensors=tensors,
    options={"template": str, "multi_label": bool},
    keywords={"CANDIDATE_LABELS": "labels"},
    encoded_rows=lambda item, keywords: len(keywords["labels"]),
    truncated=lambda rows: int(any(rows)),
)
