"""The evidence against a proof: it grows with answers that moved, and hardly ever without a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trimaran.core.tasks import gates_for
from trimaran.judging.golden import Golden, make_golden
from trimaran.judging.shadow_evidence import ShadowEvidence, shadow_gate


def after(evidence: ShadowEvidence, moved: list[bool]) -> ShadowEvidence:
    for beyond in moved:
        evidence = evidence.after(1.0 if beyond else 0.0)
    return evidence


def golden(task: str, answers: dict[str, np.ndarray]) -> Golden:  # type: ignore[type-arg]
    return make_golden(
        task=task, model="m", reference="", numbers="embedding", rows=[{"TEXT": "a"}],
        wanted=answers, proven=answers, gates=gates_for(task, "strict", {}),
    )  # fmt: skip


def test_few_answers_that_moved_are_no_alarm_and_many_are() -> None:
    fresh = ShadowEvidence(model="m", version="1", limit=0.01)
    # One in a hundred is what was proven.
    assert not after(fresh, [index % 100 == 0 for index in range(5000)]).alarm
    broken = after(fresh, [index % 5 == 0 for index in range(200)])
    assert broken.alarm
    assert str(broken).startswith("ALARM: m version 1: 40 of 200 checked answers moved by more than 0.01")
    # It stays, whatever follows.
    assert after(broken, [False] * 5000).alarm


def test_the_evidence_is_that_of_the_tried_formula() -> None:
    moved = np.random.default_rng(3).random(300) < 0.03
    stakes = np.array([2, 5, 10, 20, 40])
    wealth = np.log1p(np.outer(stakes, moved - 0.01)).sum(axis=1)
    wanted = np.logaddexp.reduce(wealth) - math.log(len(stakes))
    found = after(ShadowEvidence(model="m", version="1", limit=0.5), list(moved))
    assert found.log_evidence == pytest.approx(wanted)


def test_an_answer_is_held_against_the_gate_of_its_task() -> None:
    vectors = {"EMBEDDING": np.array([[1.0, 0.0]], np.float32)}
    bundle = golden("embedding", vectors)
    gate = shadow_gate(bundle)
    assert gate is not None
    assert (gate.metric.name, gate.limit, gate.may_move) == ("tail_cosine_distance", 0.01, 0.01)
    assert gate.distance(bundle, vectors, {"EMBEDDING": np.array([[0.0, 1.0]], np.float32)}) == pytest.approx(1.0)
    assert gate.distance(bundle, vectors, {"EMBEDDING": np.array([[np.nan, 1.0]], np.float32)}) == math.inf
    assert gate.buckets == (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)


def test_a_text_without_entities_says_nothing_and_another_set_of_them_moved() -> None:
    def column(text: str) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        return {"ENTITIES": np.array([[text.encode()]], dtype=np.object_)}

    entity = '[{"entity_group": "PER", "score": 0.9, "word": "Ada", "start": 0, "end": 3}]'
    bundle = golden("token-classification", column(entity))
    gate = shadow_gate(bundle)
    assert gate is not None
    assert gate.may_move == pytest.approx(0.03)
    assert gate.distance(bundle, column("[]"), column("[]")) is None
    assert gate.distance(bundle, column(entity), column("[]")) == 1.0
    assert gate.distance(bundle, column(entity), column(entity)) == 0.0
