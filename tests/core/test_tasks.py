"""The table of tasks is whole: outputs, metrics that its gates read, and answers for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trimaran.core.distances import largest_differences
from trimaran.core.errors import UsageError
from trimaran.core.spec import Activation, ModelRef
from trimaran.core.tasks import LEVELS, TASKS, gates_for
from trimaran.runtime.text import SEQUENCE_AXES

REF = ModelRef(
    source="x", directory="x", digest="x", family="bert", task="embedding", name="x", positions=64, layers=2, hidden=8,
    heads=2, labels=("a", "b", "c"), vocabulary=20, top_k=4, extras=("hidden_states", "attentions"),
)  # fmt: skip


def sample_outputs(name: str, *, seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    ref = REF.model_copy(update={"task": name, "extras": ()})
    outputs = {}
    for spec in TASKS[ref.task].outputs(ref):
        shape = spec.concrete({"batch": 6, "sequence": 5})
        ids = spec.dtype == "int64"
        outputs[spec.name] = generator.integers(0, 20, shape) if ids else generator.random(shape).astype(np.float32)
    return outputs | FINAL.get(name, lambda seed: {})(seed)


# Final answers that metrics read beside the numbers.
FINAL = {
    "token-classification": lambda seed: {"entities": [{("PER", seed, 3): 0.9}] * 6},
    "question-answering": lambda seed: {"spans": [{"start": seed, "end": 3, "score": 0.9}] * 6},
}


@pytest.mark.parametrize("name", TASKS)
def test_every_gate_reads_a_metric_of_its_task(name: str) -> None:
    metrics = TASKS[name].fidelity(sample_outputs(name), sample_outputs(name))
    for level in LEVELS:
        assert {gate.metric for gate in TASKS[name].gates[level]} - {"batch_change"} <= set(metrics)
    assert TASKS[name].headline in metrics


@pytest.mark.parametrize("name", TASKS)
def test_equal_outputs_keep_every_gate_and_other_outputs_do_not(name: str) -> None:
    row, outputs = TASKS[name], sample_outputs(name)
    same = {**row.fidelity(outputs, outputs), "batch_change": row.change.value(outputs, outputs)}
    other = {**row.fidelity(outputs, sample_outputs(name, seed=1)), "batch_change": 1.0}
    for level in LEVELS:
        kept = [
            [
                metrics[gate.metric] <= gate.limit if gate.comparison == "<=" else metrics[gate.metric] >= gate.limit
                for gate in row.gates[level]
            ]
            for metrics in (same, other)
        ]
        assert all(kept[0])
        assert not all(kept[1][:-1])


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_whole(name: str) -> None:
    """Names every place that a task lacks: its row, what travels, its answers as a column, its golden requests."""
    row = TASKS[name]
    assert row.served.name == name, f"runtime/tasks/{name.replace('-', '_')}.py serves another task"
    assert row.served.inputs and row.served.outputs
    assert {"exact", "strict", "balanced"} == set(row.gates)
    assert row.head is not None or name == "embedding", "no head, and token vectors are pooled for embeddings only"
    assert row.describe and row.loss.title
    requests = row.requests([("first words here", "second words there")] * 3, {"mask_token": "[MASK]"})
    wanted = {item.name for item in row.served.inputs if not item.optional}
    assert all(wanted <= set(request) for request in requests)
    assert row.column is None or row.column() is not None
    assert row.column is not None or name == "embedding"


def test_the_server_knows_which_outputs_run_along_the_tokens() -> None:
    for name in TASKS:
        for spec in TASKS[name].outputs(REF.model_copy(update={"task": name})):
            axes = tuple(index for index, dim in enumerate(spec.dims) if dim == "sequence")
            assert SEQUENCE_AXES.get(spec.name, ()) == axes


@pytest.mark.parametrize(
    ("activation", "output"), [("softmax", "logits"), ("sigmoid", "label_probabilities"), ("none", "values")]
)
def test_the_name_of_a_classifiers_output_says_what_it_is(activation: Activation, output: str) -> None:
    ref = REF.model_copy(update={"task": "text-classification", "activation": activation, "extras": ()})
    assert [spec.name for spec in TASKS[ref.task].outputs(ref)] == [output]


def test_label_sets_and_orders_are_compared_as_such() -> None:
    wanted = np.array([[0.9, 0.6], [0.1, 0.2]], np.float32)
    flipped = np.array([[0.9, 0.4], [0.1, 0.2]], np.float32)
    found = TASKS["text-classification"].fidelity({"label_probabilities": wanted}, {"label_probabilities": flipped})
    assert found["label_agreement"] == 0.5
    values = np.array([[1.0], [2.0], [3.0]], np.float32)
    found = TASKS["text-classification"].fidelity({"values": values}, {"values": values[::-1]})
    assert found["label_agreement"] == 0.0


def test_absent_tokens_are_not_compared_and_a_missing_one_is_noticed() -> None:
    short = np.array([[[1.0, 0.0], [np.nan, np.nan]]], np.float32)
    assert largest_differences({"token_logits": short}, {"token_logits": short[:, :1]}).tolist() == [0.0]
    longer = np.array([[[1.0, 0.0], [0.0, 1.0]]], np.float32)
    assert largest_differences({"token_logits": short}, {"token_logits": longer}).tolist() == [float("inf")]


def test_an_entity_that_moved_counts_against_agreement() -> None:
    row = TASKS["token-classification"]
    reference = {"entities": [{("PER", 0, 3): 0.9, ("LOC", 5, 9): 0.8}, {}]}
    moved = {"entities": [{("PER", 0, 3): 0.9, ("LOC", 5, 8): 0.8}, {}]}
    assert row.fidelity(reference, moved)["entity_agreement"] == pytest.approx(1 / 2)
    assert row.fidelity(reference, reference)["max_abs_difference"] == 0.0
    assert row.fidelity(reference, moved)["max_abs_difference"] == float("inf")


def test_the_gates_of_entities_and_spans_are_100_99_and_98_percent() -> None:
    for name, metric in (("token-classification", "entity_agreement"), ("question-answering", "span_agreement")):
        limits = [gate.limit for level in LEVELS for gate in TASKS[name].gates[level] if gate.metric == metric]
        assert limits == [1.0, 0.99, 0.98]


def test_an_override_of_no_gate_is_refused() -> None:
    with pytest.raises(UsageError, match="No gate 'speed'"):
        gates_for("embedding", "strict", {"speed": 1.0})
