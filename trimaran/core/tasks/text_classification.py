"""Text classification: labels of a text or a pair, with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Answers, Column, first_of
from trimaran.core.metrics import spearman
from trimaran.core.spec import ModelRef, TensorSpec
from trimaran.core.tasks.library import Library, as_pipelines_read, scores_by_label
from trimaran.core.tasks.shared import (
    LABEL_GATES,
    LABEL_METRICS,
    LOGITS,
    MARGIN_LOSS,
    PROBABILITY_CHANGE,
    best_labels,
    labels_from_wire,
)
from trimaran.core.tasks.task import DataMetric, Gate, Task, tensor

# The name of the output says what its numbers are.
_OUTPUT = {"softmax": "logits", "sigmoid": "label_probabilities", "none": "values"}


def _outputs(ref: ModelRef) -> tuple[TensorSpec, ...]:
    return (tensor(_OUTPUT[ref.activation], len(ref.labels)),)


def value_and_gold(gold: Sequence[str], answers: Answers, labels: Sequence[str]) -> Column:
    """The first number of each row beside the right one."""
    numbers = np.asarray(gold, np.float64)
    return np.stack([first_of(answers).reshape(len(numbers), -1)[:, 0].astype(np.float64), numbers], axis=1)


def _label_and_gold(gold: Sequence[str], answers: Answers, labels: Sequence[str]) -> Column:
    """(predicted, right) as numbers of labels."""
    numbers = {label: index for index, label in enumerate(labels)}
    return np.stack([best_labels(answers), np.asarray([numbers[label] for label in gold])], axis=1)


def _right(rows: Column) -> npt.NDArray[np.bool_]:
    return np.asarray(rows[:, 0] == rows[:, 1])


def _macro_f1(rows: Column) -> float:
    scores = []
    for label in np.unique(rows[:, 1]):
        predicted, right = rows[:, 0] == label, rows[:, 1] == label
        scores.append(2 * (predicted & right).sum() / max(1, predicted.sum() + right.sum()))
    return float(np.mean(scores))


def _column() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct({"label": pa.string(), "score": pa.float32()}))


TASK = Task(
    name="text-classification",
    describe="labels with probabilities, best first",
    model_class="AutoModelForSequenceClassification",
    outputs=_outputs,
    head=LOGITS,
    texts="either",
    labelled=True,
    facts=lambda ref, tokenizer: {"activation": ref.activation},
    library=Library(
        pipeline="text-classification",
        ask=lambda library, item: library([as_pipelines_read(item)], top_k=None, truncation=True)[0],
        numbers=scores_by_label,
        cause="the activation",
    ),
    metrics=LABEL_METRICS,
    change=PROBABILITY_CHANGE,
    gates=LABEL_GATES,
    distilled=(Gate("label_agreement", ">=", 0.95), Gate("mean_probability_change", "<=", 0.05)),
    headline="label_agreement",
    loss=MARGIN_LOSS,
    from_wire=labels_from_wire,
    data_metrics={
        "spearman": DataMetric(value_and_gold, lambda rows: spearman(rows[:, 0], rows[:, 1]), paired=True),
        "accuracy": DataMetric(
            _label_and_gold, lambda rows: float(_right(rows).mean()), right=_right, mean_of_right=True, gold="label"
        ),
        "f1": DataMetric(_label_and_gold, _macro_f1, right=_right, gold="label"),
    },
    in_graph="the head; sigmoid when labels are independent",
    on_server="softmax, labels in order",
    column=_column,
)
