"""A student's candidate is proven against its teacher too, under names of its own and in words of its own."""

from __future__ import annotations

import numpy as np

from trimaran.benchmarks.report.proof_sentence import _bound_words
from trimaran.benchmarks.report.wording import gate_words, metric_name
from trimaran.core.tasks import task
from trimaran.judging.on_teacher import against_teacher

ROW = task("text-classification")


def logits(labels: np.ndarray) -> dict[str, np.ndarray]:
    return {"logits": np.eye(3, dtype=np.float32)[labels] * 8}


def held(wrong: int, n: int = 600):
    labels = np.arange(n) % 3
    found = labels.copy()
    found[:wrong] = (found[:wrong] + 1) % 3
    return against_teacher(ROW, logits(labels), logits(found), kinds=["all"] * n)


def test_a_candidate_that_agrees_with_its_teacher_is_proven_by_a_bound() -> None:
    proof = held(wrong=6)
    agreement = next(check for check in proof.checks if check.name == "teacher_label_agreement")
    assert agreement.verdict == "proven"
    assert agreement.bound is not None and 0.95 < agreement.bound < 0.99
    assert proof.metrics["teacher_label_agreement"] == 0.99


def test_a_candidate_that_leaves_its_teacher_breaks_a_gate_in_words_that_say_so() -> None:
    broken = [check for check in held(wrong=60).checks if not check.holds]
    assert "teacher_label_agreement" in {check.name for check in broken}
    [agreement] = [check for check in broken if check.name == "teacher_label_agreement"]
    assert gate_words(agreement) == "same label to the teacher 0.9 < 0.95"
    assert "to the teacher" in _bound_words(agreement)
    assert metric_name("teacher_mean_cosine_distance") == "mean 1−cos to the teacher"


def test_few_texts_prove_nothing() -> None:
    [agreement] = [check for check in held(wrong=0, n=20).checks if check.name == "teacher_label_agreement"]
    # No text differs at all: equal up to float noise needs no statistics.
    assert agreement.verdict == "proven" and agreement.bound is None
    [agreement] = [check for check in held(wrong=1, n=30).checks if check.name == "teacher_label_agreement"]
    assert agreement.verdict == "not proven" and agreement.needs is not None
