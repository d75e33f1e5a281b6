"""The table of tasks is whole: outputs, metrics that its gates read, and answers for each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trimaran.core.corpus import shipped_pairs
from trimaran.core.distances import largest_differences
from trimaran.core.errors import UsageError
from trimaran.core.spec import Activation, ModelRef
from trimaran.core.tail import tail_rank
from trimaran.core.tasks import LEVELS, TASKS, Gate, gates_for
from trimaran.core.tasks.task import AnswerContext
from trimaran.judging.bounds import lower_share
from trimaran.judging.gate_check import gate_check
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
    assert row.head is not None or row.pools, "no head, and token vectors are not pooled"
    assert row.describe and row.loss.title
    requests = row.requests([("first words here", "second words there")] * 3, {"mask_token": "[MASK]"})
    wanted = {item.name for item in row.served.inputs if not item.optional}
    assert all(wanted <= set(request) for request in requests)
    assert row.column is None or row.column() is not None
    assert row.column is not None or name == "embedding"


def test_golden_requests_of_fill_mask_ask_for_label_words_too() -> None:
    row = TASKS["fill-mask"]
    facts = {"mask_token": "[MASK]", "words": ("the", "of", "and", "in")}
    requests = row.requests([f"text {number} here" for number in range(16)], facts)
    assert [request["TEXT"] for request in requests[16:]] == ["text 0 here", "text 8 here"]
    assert all(request["OPTIONS"] == "" for request in requests[:16])
    options = row.served.parsed_options(str(requests[16]["OPTIONS"]))
    assert options["label_words"] == {"label 0": ["the", "and"], "label 1": ["of", "in"]}
    column = row.served.tensors([[[{"token": 5, "score": 0.5}]], [{"label": "label 1", "score": 0.75}]])
    assert row.from_wire("", column, column) == {"masks": [[(5, 0.5)], [("label 1", 0.75)]]}


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
    assert row.fidelity(reference, moved)["entity_agreement"] == 0.0, "texts without an entity do not speak"
    assert row.fidelity(reference, reference)["entity_agreement"] == 1.0
    assert row.fidelity(reference, reference)["max_abs_difference"] == 0.0
    assert row.fidelity(reference, moved)["max_abs_difference"] == float("inf")


@pytest.mark.parametrize(
    ("name", "metric", "texts", "seen"),
    [
        ("token-classification", "entity_agreement", 300, (0.99, 0.98)),
        ("question-answering", "span_agreement", 600, (0.99, 0.98)),
        ("text-classification", "label_agreement", 1200, (0.995, 0.99)),
        ("multiple-choice", "choice_agreement", 648, (0.99, 0.98)),
        ("zero-shot-classification", "label_agreement", 648, (0.995, 0.99)),
    ],
)
def test_a_gate_is_proven_where_at_least_so_many_answers_are_seen_to_agree(
    name: str, metric: str, texts: int, seen: tuple[float, float]
) -> None:
    """With the shipped texts and four lossy candidates: limits are below what must be seen, because bounds decide."""
    limits = [gate.limit for level in LEVELS for gate in TASKS[name].gates[level] if gate.metric == metric]
    assert limits[0] == 1.0
    for limit, least in zip(limits[1:], seen, strict=True):
        misses = max(count for count in range(texts) if lower_share(texts - count, texts, 0.05 / 4) >= limit)
        assert misses > 0, "a good model may miss now and then"
        assert 1 - misses / texts >= least


@pytest.mark.parametrize(("name", "rows"), [("rerank", 4), ("zero-shot-classification", 3), ("multiple-choice", 4)])
def test_the_shipped_pairs_give_as_many_groups_as_the_limits_count_on(name: str, rows: int) -> None:
    judging = TASKS[name].judging(shipped_pairs("judging"))
    assert len(judging) == 648 * rows
    firsts = [text for text, _ in judging[::rows]]
    pairs = [text for text, _ in shipped_pairs("judging")]
    assert firsts[0] == pairs[0] and firsts[-1] in pairs[-2:], "from the first pair to the last"
    assert tail_rank(648, 0.05 / 4) == 2, "one outlier breaks no tail"


def test_the_documents_of_a_query_are_one_witness_of_its_scores() -> None:
    row = TASKS["rerank"]
    wanted = {"score": np.full((12, 1), 0.5)}
    moved = {"score": wanted["score"] + np.array([[0.0, 0.2, 0.0, 0.0, *[0.1] * 4, *[0.0] * 4]]).T}
    rows = {name: row.metric(name).rows(wanted, moved) for name in ("mean_score_change", "tail_score_change")}  # type: ignore[union-attr]
    assert rows["mean_score_change"] == pytest.approx([0.1, 0.2, 0.0])
    assert rows["tail_score_change"] == pytest.approx([0.4, 0.2, 0.0])
    live = {name: side["score"][:6] for name, side in (("wanted", wanted), ("moved", moved))}
    metric = row.metric("tail_score_change")
    assert metric is not None
    assert metric.rows({"score": live["wanted"]}, {"score": live["moved"]}).max() == pytest.approx(0.4)


def test_documents_are_compared_within_a_query_and_not_across_queries() -> None:
    row = TASKS["rerank"]
    pairs = [(f"query {index}", f"document {index}") for index in range(5)]
    assert [query for query, _ in row.judging(pairs)[:8]] == ["query 0"] * 4 + ["query 1"] * 4
    wanted = np.array([[0.9], [0.5], [0.1], [0.1], [0.3], [0.3], [0.3], [0.3]])
    shifted = wanted.copy()
    shifted[4:] += 0.5
    assert row.fidelity({"score": wanted}, {"score": shifted})["order_agreement"] == 1.0
    swapped = wanted[[1, 0, 2, 3, 5, 4, 7, 6]]
    metric = row.metric("order_agreement")
    assert metric is not None
    assert metric.rows({"score": wanted}, {"score": swapped}).tolist() == [0.8], "equally good documents do not count"


def test_documents_that_are_all_alike_neither_break_nor_prove_their_order() -> None:
    scores = {"score": np.full((8, 1), 0.3)}
    metric = TASKS["rerank"].metric("order_agreement")
    assert metric is not None
    assert metric.value(scores, scores) == 1.0
    check = gate_check(metric, Gate("order_agreement", ">=", 0.98), metric.rows(scores, scores), alpha=0.05)
    assert (check.verdict, check.n) == ("not proven", 0)


def test_zero_shot_is_judged_by_its_best_label() -> None:
    row = TASKS["zero-shot-classification"]
    texts = row.judging([("a text", "a hypothesis"), ("another", "one more")])
    assert len(texts) == 6 and texts[3] == ("another", "This example is sports.")
    logits = np.zeros((6, 3))
    logits[:, 2] = [1, 2, 3, 3, 2, 1]
    context = AnswerContext(None, None, (), {"entailment": 2})  # type: ignore[arg-type]
    wanted = row.judged(context, texts, {"logits": logits})
    assert wanted["logits"].tolist() == [[1, 2, 3], [3, 2, 1]]
    # The label of each pair is the same, and the best label of the second text is not.
    logits = logits.copy()
    logits[4, 2] = 3.5
    moved = row.judged(context, texts, {"logits": logits})
    assert row.fidelity(wanted, moved)["label_agreement"] == 0.5
    pairs = [("a text", "a hypothesis")] * 3
    assert row.judged(context, pairs, {"logits": logits[:3]})["logits"].shape == (3, 3)


def test_fill_mask_is_judged_at_masks_alone() -> None:
    row = TASKS["fill-mask"]
    encodings = [SimpleNamespace(ids=[1, 9, 2]), SimpleNamespace(ids=[1, 3, 9])]
    context = AnswerContext(
        SimpleNamespace(encodings=lambda texts: encodings),  # type: ignore[arg-type]
        SimpleNamespace(token=lambda index: "[MASK]"),  # type: ignore[arg-type]
        (),
        {"mask_id": 9},
    )
    texts = ["one two three", "four"]
    assert row.asked(context, texts) == ["one [MASK] three", "[MASK]"]
    ids = np.array([[[5], [6], [7]], [[5], [6], [7]]])
    scores = np.full((2, 3, 1), 0.5, np.float32)
    wanted = row.judged(context, texts, {"token_scores": scores, "token_ids": ids})
    elsewhere, there = ids.copy(), ids.copy()
    elsewhere[:, 0], there[1, 2] = 8, 8
    for moved, agreement in ((elsewhere, 1.0), (there, 0.5)):
        found = row.judged(context, texts, {"token_scores": scores, "token_ids": moved})
        assert row.fidelity(wanted, found)["token_agreement"] == agreement


def test_a_metric_that_is_only_shown_can_be_gated() -> None:
    gates = {gate.metric: gate for gate in gates_for("embedding", "strict", {"neighbour_overlap": 0.97})}
    assert gates["neighbour_overlap"].comparison == ">="
    assert gates["neighbour_overlap"].limit == 0.97
    assert "neighbour_overlap" not in {gate.metric for gate in gates_for("embedding", "strict", {})}


def test_an_override_of_no_gate_is_refused() -> None:
    with pytest.raises(UsageError, match="No gate 'speed'"):
        gates_for("embedding", "strict", {"speed": 1.0})
