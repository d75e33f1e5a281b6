"""What an encoder is asked for: one row a task, with its outputs, its distance and its gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from trimaran.errors import UsageError
from trimaran.parity import (
    Outputs,
    classification_change,
    classification_fidelity,
    embedding_change,
    embedding_fidelity,
)
from trimaran.spec import TensorSpec

Level = Literal["exact", "strict", "balanced"]
LEVELS: tuple[Level, ...] = ("exact", "strict", "balanced")


@dataclass(frozen=True)
class Gate:
    """A limit on one metric; a candidate that breaks it is rejected with the number."""

    metric: str
    comparison: Literal["<=", ">="]
    limit: float


@dataclass(frozen=True)
class Task:
    """`fidelity` compares a candidate with eager PyTorch; `change` one engine with itself, run another way."""

    name: str
    model_class: str
    architectures: tuple[str, ...]
    outputs: Callable[[int, int], tuple[TensorSpec, ...]]
    fidelity: Callable[[Outputs, Outputs], dict[str, float]]
    change: Callable[[Outputs, Outputs], float]
    gates: Mapping[Level, tuple[Gate, ...]]
    headline: str
    describe: str


def _embedding_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name="embedding", dtype="float32", dims=("batch", hidden)),)


def _logit_outputs(hidden: int, labels: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name="logits", dtype="float32", dims=("batch", labels)),)


# As served, a text's answer must not depend on the texts that happen to share its batch.
_INVARIANCE = Gate("batch_change", "<=", 1e-5)

TASKS: dict[str, Task] = {
    row.name: row
    for row in (
        Task(
            name="embedding",
            model_class="AutoModel",
            architectures=("Model",),
            outputs=_embedding_outputs,
            fidelity=embedding_fidelity,
            change=embedding_change,
            gates={
                "exact": (Gate("max_abs_difference", "<=", 1e-5), _INVARIANCE),
                "strict": (
                    Gate("mean_cosine_distance", "<=", 1.2e-3),
                    Gate("rank_correlation", ">=", 0.9995),
                    Gate("neighbour_overlap", ">=", 0.97),
                    _INVARIANCE,
                ),
                "balanced": (
                    Gate("mean_cosine_distance", "<=", 4e-3),
                    Gate("rank_correlation", ">=", 0.999),
                    Gate("neighbour_overlap", ">=", 0.94),
                    _INVARIANCE,
                ),
            },
            headline="neighbour_overlap",
            describe="one vector a text: pooling and normalisation inside the graph",
        ),
        Task(
            name="text-classification",
            model_class="AutoModelForSequenceClassification",
            architectures=("ForSequenceClassification",),
            outputs=_logit_outputs,
            fidelity=classification_fidelity,
            change=classification_change,
            gates={
                "exact": (
                    Gate("label_agreement", ">=", 1.0),
                    Gate("mean_probability_change", "<=", 1e-5),
                    _INVARIANCE,
                ),
                "strict": (
                    Gate("label_agreement", ">=", 0.995),
                    Gate("mean_probability_change", "<=", 0.005),
                    _INVARIANCE,
                ),
                "balanced": (
                    Gate("label_agreement", ">=", 0.99),
                    Gate("mean_probability_change", "<=", 0.01),
                    _INVARIANCE,
                ),
            },
            headline="label_agreement",
            describe="labels with probabilities, best first",
        ),
    )
}


def task(name: str) -> Task:
    if name not in TASKS:
        raise UsageError(f"Unknown task {name!r}.", hint=f"Known: {', '.join(TASKS)}.")
    return TASKS[name]


def gates_for(name: str, level: Level, overrides: Mapping[str, float]) -> tuple[Gate, ...]:
    """The level's gates with single limits replaced; an override of a metric without a gate is refused."""
    gates = {gate.metric: gate for gate in task(name).gates[level]}
    unknown = sorted(set(overrides) - set(gates))
    if unknown:
        raise UsageError(f"No gate {unknown[0]!r} at level {level} of {name}.", hint=f"Gates: {', '.join(gates)}.")
    return tuple(
        Gate(gate.metric, gate.comparison, overrides.get(metric, gate.limit)) for metric, gate in gates.items()
    )
