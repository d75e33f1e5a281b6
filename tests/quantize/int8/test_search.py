"""The search on a world whose losses are known: each layer in INT8 adds its own to every text's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trimaran.core.distances import Outputs
from trimaran.core.tasks import Gate
from trimaran.judging.sensitivity import Sensitivity
from trimaran.quantize.int8 import search as search_module
from trimaran.quantize.int8.search import MOST_STRETCH, AnswersOf, SearchQuestion, search, working_clock

LOSSES = {"a": 0.001, "b": 0.02, "c": 0.002, "d": 0.015}
WORK = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 4.0}
SPREAD = np.linspace(0.95, 1.05, 200)
# As large as scores that are not compared relative to the largest.
SCORE = np.ones((200, 1))


def answer(kept: frozenset[str]) -> Outputs:
    loss = sum(loss for name, loss in LOSSES.items() if name not in kept)
    return {"score": (SCORE[:, 0] + loss * SPREAD)[:, None]}


def found(
    limit: float,
    *,
    budget_s: float = 1e9,
    tick_s: float = 1.0,
    answer_with: AnswersOf = answer,
    suspected: dict[str, float] | None = None,
) -> tuple[frozenset[str], Sensitivity]:
    ticks = itertools.count()
    question = SearchQuestion(
        task="rerank",
        gates=[Gate("mean_score_change", "<=", limit)],
        reference={"score": SCORE},
        answer=answer_with,
        quick_reference={"score": SCORE},
        quick_answer=answer,
        work=WORK,
        texts=200,
        texts_digest="0",
    )
    return search(
        question,
        budget_s=budget_s,
        suspected=suspected or LOSSES,
        advance=lambda done, total, what: None,
        clock=lambda: next(ticks) * tick_s,
    )


def test_nothing_stays_in_float_when_the_gates_keep_without() -> None:
    kept, sensitivity = found(0.05)
    assert kept == frozenset()
    assert sensitivity.stopped == "gates keep"
    assert [round(layer.cost or 0, 6) for layer in sensitivity.layers] == list(LOSSES.values())


def test_what_layers_cost_is_not_measured_for_long_where_it_decides_nothing() -> None:
    kept, sensitivity = found(0.05, tick_s=11.0)
    assert (kept, sensitivity.stopped) == (frozenset(), "gates keep")
    costs = [layer.cost for layer in sensitivity.layers]
    assert costs[1] is not None and costs[0] is None, "the most suspected first"


@pytest.mark.parametrize(("limit", "expected"), [(0.02, {"b"}), (0.005, {"b", "d"}), (0.0015, {"b", "d", "c"})])
def test_the_worst_layers_stay_in_float_until_the_gates_keep(limit: float, expected: set[str]) -> None:
    kept, sensitivity = found(limit)
    assert kept == expected
    assert sensitivity.stopped == "gates keep"
    assert {layer.name for layer in sensitivity.layers if layer.kept == "float"} == expected
    assert sensitivity.steps[-1].holds or any(step.holds and step.kept == len(kept) for step in sensitivity.steps)


def test_the_worst_kind_decides_although_the_mean_keeps_its_gate() -> None:
    # Layer "a" moves the documents of one query in eight, of a kind of its own, and "b" moves all a little.
    rare = np.arange(200) // 4 % 8 == 0
    kinds = ["rare" if index else "common" for index in rare]

    def moved(kept: frozenset[str]) -> Outputs:
        loss = 0.02 * rare * ("a" not in kept) + 0.004 * SPREAD * ("b" not in kept)
        return {"score": SCORE + loss[:, None]}

    def layers_in_float(kinds: list[str]) -> frozenset[str]:
        ticks = itertools.count()
        question = SearchQuestion(
            task="rerank", gates=[Gate("mean_score_change", "<=", 0.01)], reference={"score": SCORE}, answer=moved,
            quick_reference={"score": SCORE}, quick_answer=moved, work={"a": 1.0, "b": 1.0, "c": 1.0},
            texts=200, texts_digest="0", kinds=kinds, quick_kinds=kinds,
        )  # fmt: skip
        kept, _ = search(
            question,
            budget_s=1e9,
            suspected={"b": 0.3, "a": 0.2, "c": 0.1},
            advance=lambda *_: None,
            clock=lambda: next(ticks),
        )
        return kept

    assert layers_in_float([]) == frozenset()
    assert layers_in_float(kinds) == {"a"}


def test_an_impossible_gate_ends_with_nothing_left() -> None:
    _, sensitivity = found(-1.0)
    assert sensitivity.stopped == "nothing left"
    assert not sensitivity.gates[0].holds


def test_the_budget_ends_the_search_and_says_so() -> None:
    _, sensitivity = found(0.005, budget_s=3.0, suspected={"a": 1.0, "b": 0.01, "c": 0.02, "d": 0.01})
    assert sensitivity.stopped == "budget"
    assert [layer.cost for layer in sensitivity.layers].count(None) > 0


def test_a_search_that_made_all_its_trials_does_not_blame_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers in float should be enough, but something else loses too."""
    monkeypatch.setattr(search_module, "MOST_STEPS", 1)
    kept, sensitivity = found(0.0045, answer_with=lambda kept: {"score": answer(kept)["score"] + 0.002})
    assert (kept, sensitivity.stopped) == ({"b", "d"}, "trials")
    assert sensitivity.seconds < sensitivity.budget_s


def test_a_budget_that_is_gone_at_once_still_tries_the_layers_that_are_suspected() -> None:
    kept, sensitivity = found(0.005, budget_s=0.0, suspected={"a": 0.02, "b": 0.4, "c": 0.03, "d": 0.3})
    assert kept == {"b", "d"}
    assert sensitivity.stopped == "gates keep" and sensitivity.gates[0].holds
    assert [layer.cost for layer in sensitivity.layers] == [None] * 4
    # Two sets were tried: all layers in INT8, and those that are suspected in float.
    assert [step.kept for step in sensitivity.steps] == [0, 2]


def test_time_in_which_other_processes_hold_the_cpu_hardly_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_s, cpu_s = 100.0, 7.0
    monkeypatch.setattr("time.monotonic", lambda: wall_s)
    monkeypatch.setattr("time.process_time", lambda: cpu_s)
    clock = working_clock()
    wall_s, cpu_s = 120.0, 17.0
    assert clock() == 10.0
    # Two threads at once use more CPU time than the wall clock shows.
    cpu_s = 47.0
    assert clock() == 20.0
    # A process that gets next to nothing gives up some day.
    wall_s, cpu_s = 500.0, 8.0
    assert clock() == 400.0 / MOST_STRETCH


def test_no_set_of_layers_is_tried_twice() -> None:
    asked: list[frozenset[str]] = []

    def counted(kept: frozenset[str]) -> Outputs:
        asked.append(kept)
        return answer(kept)

    for limit in (0.02, 0.005, 0.0015):
        asked.clear()
        found(limit, answer_with=counted)
        assert len(asked) == len(set(asked))


def test_one_layer_at_least_stays_in_int8() -> None:
    kept, _ = found(-1.0)
    assert len(kept) == len(WORK) - 1


def test_a_layer_that_moves_a_few_texts_far_stays_in_float_for_the_tail() -> None:
    """Layer b moves three texts of 200 and hardly the mean; the others move every text a little."""
    logits = np.zeros((200, 2))

    def moved_by(kept: frozenset[str]) -> Outputs:
        found = logits.copy()
        found[:, 0] += sum(0.005 for name in "acd" if name not in kept) * SPREAD
        found[:3, 0] += 0.0 if "b" in kept else 0.3
        return {"logits": found}

    def kept_for(*gates: Gate) -> tuple[frozenset[str], Sensitivity]:
        question = SearchQuestion(
            task="text-classification",
            gates=gates,
            reference={"logits": logits},
            answer=moved_by,
            quick_reference={"logits": logits},
            quick_answer=moved_by,
            work=WORK,
            texts=200,
            texts_digest="0",
        )
        return search(question, budget_s=1e9, suspected=LOSSES, advance=lambda done, total, what: None)

    mean, tail = Gate("mean_probability_change", "<=", 0.006), Gate("tail_probability_change", "<=", 0.02)
    assert kept_for(mean)[0] == frozenset()
    kept, sensitivity = kept_for(mean, tail)
    assert kept == {"b"}
    assert sensitivity.stopped == "gates keep"
