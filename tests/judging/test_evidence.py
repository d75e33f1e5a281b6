from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.distances import similarity_changes
from trimaran.core.tasks import TASKS, Gate, gates_for
from trimaran.judging.evidence import JUDGED, evidence_for, mean_interval, share_interval

GENERATOR = np.random.default_rng(5)
EMBEDDING, LABELS = TASKS["embedding"], TASKS["text-classification"]


def moved(rows: np.ndarray, amount: float) -> np.ndarray:
    return (rows + amount * GENERATOR.standard_normal(rows.shape)).astype(np.float32)


VECTORS = GENERATOR.standard_normal((120, 16)).astype(np.float32)


def test_every_gate_of_every_task_has_its_evidence() -> None:
    """The way rows share a batch, and the largest |Δ| of any number, are proven elsewhere."""
    tokens = GENERATOR.standard_normal((9, 5, 3)).astype(np.float32)
    answers = {
        "embedding": {"embedding": VECTORS},
        "text-classification": {"logits": VECTORS},
        "zero-shot-classification": {"logits": VECTORS},
        "feature-extraction": {"token_embeddings": tokens},
        "token-classification": {"token_logits": tokens, "entities": [{("PER", 0, 3): 0.9}] * 9},
        "question-answering": {
            "start_logits": tokens[..., 0],
            "end_logits": tokens[..., 1],
            "spans": [{"start": 0, "end": 3, "score": 0.9}] * 9,
        },
        "fill-mask": {"token_scores": tokens, "token_ids": np.argsort(-tokens, axis=-1)},
        "rerank": {"score": VECTORS[:, :1]},
        "sparse-embedding": {"weights": np.abs(VECTORS)},
        "hybrid-embedding": {
            "embedding": VECTORS[: len(tokens)],
            "token_weights": np.abs(tokens[..., 0]),
            "token_embeddings": tokens,
        },
        "multiple-choice": {"score": VECTORS[:, :1]},
        "next-sentence": {"label_probabilities": 1 / (1 + np.exp(-VECTORS[:, :1]))},
    }
    assert set(answers) == set(TASKS)
    for name, outputs in answers.items():
        gates = gates_for(name, "balanced", {})
        found = evidence_for(TASKS[name], gates, outputs, outputs)
        assert {one.metric for one in found} == {gate.metric for gate in gates} - {"batch_change"}, name
        assert all(one.holds for one in found), name
        assert TASKS[name].loss.by_text(outputs, outputs).shape == (len(next(iter(outputs.values()))),)


def test_a_mean_that_only_just_keeps_its_limit_is_luck() -> None:
    candidate = moved(VECTORS, 0.05)
    reference = {"embedding": VECTORS}
    mean = float(EMBEDDING.loss.by_text(reference, {"embedding": candidate}).mean())

    def held(limit: float) -> bool:
        gate = Gate("mean_cosine_distance", "<=", limit)
        return evidence_for(EMBEDDING, [gate], reference, {"embedding": candidate})[0].holds

    assert not held(mean * 1.001)
    assert held(mean * 1.5)


def test_few_texts_cannot_prove_a_share_so_none_may_change() -> None:
    gate = Gate("label_agreement", ">=", 0.995)
    logits = np.eye(4, dtype=np.float32)[GENERATOR.integers(4, size=100)] * 5
    clean = evidence_for(LABELS, [gate], {"logits": logits}, {"logits": logits})[0]
    assert clean.holds
    assert clean.confidence == pytest.approx(1 - 0.995**100)
    flipped = logits.copy()
    flipped[0] = -flipped[0]
    assert not evidence_for(LABELS, [gate], {"logits": logits}, {"logits": flipped})[0].holds


def test_many_texts_prove_a_share_despite_a_change() -> None:
    logits = np.eye(4, dtype=np.float32)[GENERATOR.integers(4, size=3000)] * 5
    flipped = logits.copy()
    flipped[:3] = -flipped[:3]
    assert evidence_for(LABELS, [Gate("label_agreement", ">=", 0.995)], {"logits": logits}, {"logits": flipped})[
        0
    ].holds
    flipped[:14] = -logits[:14]
    assert not evidence_for(LABELS, [Gate("label_agreement", ">=", 0.995)], {"logits": logits}, {"logits": flipped})[
        0
    ].holds


def test_intervals_hold_the_value_and_shrink_with_texts() -> None:
    few, many = GENERATOR.random(20), GENERATOR.random(2000)
    for values in (few, many):
        mean, low, high = mean_interval(values)
        assert low < mean < high
    assert mean_interval(many)[2] - mean_interval(many)[1] < mean_interval(few)[2] - mean_interval(few)[1]
    share, low, high = share_interval(99, 100)
    assert (share, round(low, 3), round(high, 4)) == (0.99, 0.953, 0.9995)


def test_a_clean_slate_with_narrow_margins_is_luck() -> None:
    """No label changed on these texts, but margins moved by as much as many of them are wide."""
    margins = np.linspace(0.02, 3.0, 60)
    logits = np.stack([margins, np.zeros(60)], axis=1).astype(np.float32)
    moved = logits.copy()
    moved[:, 0] += np.where(margins > 1.0, -0.9, 0.5).astype(np.float32)
    gate = Gate("label_agreement", ">=", 0.99)
    found = evidence_for(LABELS, [gate], {"logits": logits}, {"logits": moved})[0]
    assert found.value == 1.0 and not found.holds
    moved[:, 0] = logits[:, 0] + 0.001
    assert evidence_for(LABELS, [gate], {"logits": logits}, {"logits": moved})[0].holds


def test_a_tail_is_foreseen_beyond_the_largest_of_a_few_texts() -> None:
    """Held out are fewer texts than a judge has: a largest change that only just keeps its limit is luck."""
    few = VECTORS[:20]
    reference, candidate = {"embedding": few}, {"embedding": moved(few, 0.05)}
    largest = float(EMBEDDING.loss.by_text(reference, candidate).max())
    found = evidence_for(EMBEDDING, [Gate("tail_cosine_distance", "<=", largest * 1.001)], reference, candidate)[0]
    assert found.value == pytest.approx(largest)
    assert found.high > largest
    assert not found.holds
    assert evidence_for(EMBEDDING, [Gate("tail_cosine_distance", "<=", largest * 5)], reference, candidate)[0].holds


def test_one_text_of_a_kind_that_the_judge_has_less_of_does_not_decide_a_tail() -> None:
    """The judge lets some texts exceed a tail's limit. Among few texts, as large a share of them may."""
    vectors = GENERATOR.normal(size=(280, 32)).astype(np.float32)
    candidate = moved(vectors, 0.02)
    candidate[7] = moved(vectors[7:8], 1.0)[0]
    reference, answers = {"embedding": vectors}, {"embedding": candidate}
    changes = EMBEDDING.loss.by_text(reference, answers)
    gate = Gate("tail_cosine_distance", "<=", float(np.sort(changes)[-2]) * 4)
    assert changes[7] > gate.limit
    # A tenth of the held-out texts are unusual, a twentieth of the judge's: one of the former counts half.
    kinds = ["unusual" if index % 10 == 7 else "own" for index in range(280)]
    assert evidence_for(EMBEDDING, [gate], reference, answers, kinds)[0].holds
    for other in (17, 27, 37, 47):
        answers["embedding"][other] = moved(vectors[other : other + 1], 1.0)[0]
    assert not evidence_for(EMBEDDING, [gate], reference, answers, kinds)[0].holds


def test_neighbours_of_few_texts_are_no_nearer_than_those_of_the_judge() -> None:
    vectors = GENERATOR.normal(size=(JUDGED // 5, 32)).astype(np.float32)
    answers = {"embedding": moved(vectors, 0.05)}
    metric = EMBEDDING.metric("tail_similarity_change")
    assert metric is not None and metric.foreseen is not None
    foreseen = metric.foreseen({"embedding": vectors}, answers, JUDGED)
    np.testing.assert_array_equal(foreseen, similarity_changes(vectors, answers["embedding"], 2))
    whole = metric.foreseen({"embedding": vectors}, answers, len(vectors))
    np.testing.assert_array_equal(whole, metric.by_text({"embedding": vectors}, answers))
