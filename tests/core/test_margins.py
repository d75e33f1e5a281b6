from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.margins import (
    foreseen_changes,
    foreseen_probability_change,
    margins_and_moves,
    narrowest_first,
    squared_moves,
)
from trimaran.core.tasks import TASKS, Gate
from trimaran.judging.evidence import JUDGED, JUDGES_ALPHA, bootstrap_draws, evidence_for
from trimaran.judging.gate_check import gate_check

GENERATOR = np.random.default_rng(8)
LABELS = TASKS["text-classification"]


def world(noise: float, *, n: int = 160) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Margins spread evenly up to 8, each moved by as much noise."""
    margins = GENERATOR.uniform(0, 8, n)
    logits = np.stack([margins, np.zeros(n)], axis=1)
    moved = logits + np.stack([GENERATOR.normal(0, noise, n), np.zeros(n)], axis=1)
    return {"logits": logits}, {"logits": moved}


def test_a_margin_is_by_which_the_best_label_stands_above_the_next_on_either_side() -> None:
    reference = {"logits": np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 4.0]])}
    candidate = {"logits": np.array([[3.0, 1.0, 2.5], [0.0, 1.0, 4.5]])}
    margins, moves = margins_and_moves(reference, candidate) or (None, None)
    assert list(margins) == [2.0, 3.0]
    assert list(moves) == [-1.5, 0.5]


def test_independent_labels_have_a_margin_each_around_one_half() -> None:
    reference = {"label_probabilities": np.array([[0.5 + 0.4, 0.5 - 0.4]])}
    candidate = {"label_probabilities": np.array([[0.5, 0.5]])}
    margins, moves = margins_and_moves(reference, candidate) or (None, None)
    assert margins == pytest.approx([np.log(9)] * 2)
    assert moves == pytest.approx([-np.log(9)] * 2)


def test_numbers_without_a_border_have_no_margin_but_a_loss() -> None:
    reference, candidate = {"values": np.zeros((3, 1))}, {"values": np.array([[0.0], [1.0], [2.0]])}
    assert margins_and_moves(reference, candidate) is None
    assert narrowest_first(reference) is None
    assert list(squared_moves(reference, candidate)) == [0.0, 1.0, 4.0]


def test_what_is_foreseen_is_what_many_more_texts_show() -> None:
    """160 texts foretell, within their interval, the share that 200 000 texts of the same kind lose."""
    foreseen = foreseen_changes(*world(0.4), bootstrap_draws)
    assert foreseen is not None
    reference, candidate = world(0.4, n=200_000)
    truth = float((reference["logits"].argmax(1) != candidate["logits"].argmax(1)).mean())
    assert truth == pytest.approx(0.02, rel=0.1)
    assert np.quantile(foreseen, 0.05) < truth < np.quantile(foreseen, 0.95)


def test_a_pass_on_held_out_texts_is_a_pass_of_the_judge() -> None:
    """Of many worlds near the limit, those that hold break the gate before a judge with other texts only rarely."""
    gate, held, broken = Gate("label_agreement", ">=", 0.98), 0, 0
    metric = LABELS.metric("label_agreement")
    assert metric is not None
    for noise in np.repeat([0.02, 0.04, 0.06, 0.1], 25):
        if evidence_for(LABELS, [gate], *world(noise))[0].holds:
            held += 1
            reference, candidate = world(noise, n=JUDGED)
            agreed = metric.by_text(reference, candidate)
            broken += not gate_check(metric, gate, agreed, alpha=JUDGES_ALPHA).holds
    assert held >= 25, "a gate that nothing keeps proves nothing"
    assert broken <= 0.1 * held


def test_texts_nearest_to_another_label_come_first() -> None:
    assert narrowest_first({"logits": np.array([[5.0, 0.0], [0.1, 0.0], [0.0, 1.0]])}) == [1, 2, 0]


def test_the_probability_change_that_is_foreseen_is_that_of_many_more_texts() -> None:
    foreseen = foreseen_probability_change(*world(0.1), rarity=1e-3)
    reference, candidate = world(0.1, n=200_000)
    sides = [1 / (1 + np.exp(side["logits"][:, 1] - side["logits"][:, 0])) for side in (reference, candidate)]
    assert foreseen == pytest.approx(float(np.quantile(np.abs(sides[0] - sides[1]), 1 - 1e-3)), rel=0.25)


def test_independent_labels_are_foreseen_by_their_log_odds() -> None:
    odds = GENERATOR.uniform(-6, 6, (160, 4))
    moved = odds + GENERATOR.normal(0, 0.1, odds.shape)
    sides = [{"label_probabilities": 1 / (1 + np.exp(-side))} for side in (odds, moved)]
    foreseen = foreseen_probability_change(*sides, rarity=1e-3)
    assert foreseen is not None and 0.05 < foreseen < 0.12
    assert foreseen_probability_change({"values": odds}, {"values": moved}, rarity=1e-3) is None


def test_a_tail_that_holds_on_held_out_texts_holds_before_the_judge() -> None:
    gate, held, broken = Gate("tail_probability_change", "<=", 0.02), 0, 0
    for noise in np.repeat([0.01, 0.02, 0.03, 0.05], 25):
        if evidence_for(LABELS, [gate], *world(noise))[0].holds:
            held += 1
            reference, candidate = world(noise, n=JUDGED)
            broken += LABELS.fidelity(reference, candidate)["tail_probability_change"] > gate.limit
    assert held >= 30
    assert broken <= 0.1 * held
