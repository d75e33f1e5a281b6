"""The tasks that encoders are trained for: one file each, registered here by one line."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.core.choices import Level
from trimaran.core.errors import UsageError
from trimaran.core.tasks import (
    embedding,
    feature_extraction,
    fill_mask,
    hybrid_embedding,
    multiple_choice,
    next_sentence,
    question_answering,
    rerank,
    sparse_embedding,
    text_classification,
    token_classification,
    zero_shot_classification,
)
from trimaran.core.tasks.task import LEVELS, Gate, Task

__all__ = ["LEVELS", "TAILS", "TASKS", "Gate", "Level", "Task", "gates_for", "task"]

TASKS: dict[str, Task] = {
    row.name: row
    for row in (
        embedding.TASK,
        text_classification.TASK,
        feature_extraction.TASK,
        token_classification.TASK,
        question_answering.TASK,
        fill_mask.TASK,
        rerank.TASK,
        sparse_embedding.TASK,
        hybrid_embedding.TASK,
        zero_shot_classification.TASK,
        multiple_choice.TASK,
        next_sentence.TASK,
    )
}

# By name.
METRICS = {metric.name: metric for row in TASKS.values() for metric in row.metrics}
# Those that are the tail of a distance: they need many texts.
TAILS = frozenset(name for name, metric in METRICS.items() if metric.kind == "tail")


def task(name: str) -> Task:
    if name not in TASKS:
        raise UsageError(f"Unknown task {name!r}.", hint=f"Known: {', '.join(TASKS)}.")
    return TASKS[name]


def gates_for(name: str, level: Level, overrides: Mapping[str, float]) -> tuple[Gate, ...]:
    """The level's gates with single limits replaced, and gates on metrics that are else only shown added.

    A metric that the task has not is refused.
    """
    row = task(name)
    gates = {gate.metric: gate for gate in row.gates[level]}
    shown = {metric.name: Gate(metric.name, metric.comparison, 0.0) for metric in row.metrics}
    for metric, limit in overrides.items():
        gate = gates.get(metric, shown.get(metric))
        if gate is None:
            known = ", ".join(dict.fromkeys([*gates, *shown]))
            raise UsageError(f"No gate {metric!r} at level {level} of {name}.", hint=f"Gates: {known}.")
        gates[metric] = Gate(metric, gate.comparison, limit)
    return tuple(gates.values())
