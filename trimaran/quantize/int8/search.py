"""Finds which layers must stay in float for the gates to keep, by trying them on held-out text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trimaran.core.distances import Answers, Column
from trimaran.core.tasks import Gate, task
from trimaran.judging.evidence import Evidence, evidence_for, mean_interval
from trimaran.judging.sensitivity import LayerCost, SearchStep, Sensitivity, Stopped

Answer = Callable[[frozenset[str]], Answers]
Advance = Callable[[int, int, str], None]
Clock = Callable[[], float]
# More trials than this after the layers were measured bring nothing that a person would wait for.
MOST_STEPS = 12
MOST_REFUSED = 2
# Where every gate keeps with all layers in INT8, what each costs is told, but decides nothing.
TELLING_S = 25.0
# The loss follows a gate's metric with this power: noise twice as large moves a probability twice as far, and has four
# times the squared margin.
_POWERS = {
    "mean_cosine_distance": 1,
    "tail_cosine_distance": 1,
    "mean_score_change": 1,
    "mean_probability_change": 2,
    "tail_probability_change": 2,
    "label_agreement": 2,
}


@dataclass(frozen=True)
class Question:
    """`answer(kept)` runs the held-out texts with those layers in float; `work` is what a layer costs in float.

    `quick_answer` does the same for some of the texts, `quick_reference` being the float graph's answers to those: it
    tells layers apart, and decides nothing.
    """

    task: str
    gates: Sequence[Gate]
    reference: Answers
    answer: Answer
    quick_reference: Answers
    quick_answer: Answer
    work: Mapping[str, float]
    texts: int
    texts_digest: str


@dataclass
class _Search:
    question: Question
    deadline_s: float
    advance: Advance
    clock: Clock
    mean: float = 0.0
    costs: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    steps: list[SearchStep] = field(default_factory=list)
    tried: set[frozenset[str]] = field(default_factory=set)

    @property
    def late(self) -> bool:
        return self.clock() >= self.deadline_s

    def quick_losses(self, kept: frozenset[str]) -> Column:
        question = self.question
        return task(question.task).loss.by_text(question.quick_reference, question.quick_answer(kept))

    def attempt(self, kept: frozenset[str]) -> tuple[Evidence, ...]:
        self.tried.add(kept)
        found = self.question.answer(kept)
        row = task(self.question.task)
        losses = row.loss.by_text(self.question.reference, found)
        evidence = evidence_for(row, self.question.gates, self.question.reference, found)
        value, _, high = mean_interval(losses)
        holds = all(one.holds for one in evidence)
        self.steps.append(SearchStep(kept=len(kept), value=value, high=high, holds=holds))
        if not kept:
            self.mean = value
        return evidence

    def measure(self, names: Sequence[str]) -> None:
        """What each layer costs if it alone is in INT8; only the end of the budget leaves any out.

        Not what all others cost without it: their noise would hide it.
        """
        whole = frozenset(self.question.work)
        base = self.quick_losses(whole)
        found: dict[str, Column] = {}
        for done, name in enumerate(names):
            if self.late:
                break
            self.advance(done, len(names), f"{name} alone in INT8")
            found[name] = self.quick_losses(whole - {name}) - base
        # The quick texts' loss is another than all texts', and costs only nearly add up: they are told in terms of all,
        # where all are known.
        total = sum(max(0.0, float(losses.mean())) for losses in found.values())
        ratio = self.mean / total if total > 0 and len(found) == len(names) else 1.0
        self.costs = {name: mean_interval(losses * ratio) for name, losses in found.items()}

    def left(self, kept: frozenset[str]) -> float:
        """The share of all costs that stays when these layers are in float."""
        costs = {name: max(0.0, cost) for name, (cost, _, _) in self.costs.items()}
        total = sum(costs.values())
        return sum(cost for name, cost in costs.items() if name not in kept) / total if total > 0 else 1.0


def search(
    question: Question,
    *,
    budget_s: float,
    first: Sequence[str],
    advance: Advance,
    clock: Clock = time.monotonic,
) -> tuple[frozenset[str], Sensitivity]:
    """The layers to keep in float, and how that was found. `first` orders the layers by where most loss is suspected,
    so that a short budget is spent there.
    """
    begun_s = clock()
    found = _Search(question, begun_s + budget_s, advance, clock)
    kept: frozenset[str] = frozenset()
    evidence = found.attempt(kept)
    keeps = all(one.holds for one in evidence)
    if keeps:
        found.deadline_s = min(found.deadline_s, clock() + TELLING_S)
    found.measure(first)
    stopped: Stopped = "gates keep"
    if not keeps:
        kept, evidence, stopped = _grow(found, evidence)
        if stopped == "gates keep":
            kept, evidence = _shrink(found, kept, evidence)
    layers = tuple(_cost(name, found.costs.get(name), name in kept) for name in question.work)
    return kept, Sensitivity(
        metric=task(question.task).loss.title,
        texts=question.texts,
        texts_digest=question.texts_digest,
        layers=layers,
        steps=tuple(found.steps),
        gates=evidence,
        stopped=stopped,
        seconds=round(clock() - begun_s, 1),
        budget_s=budget_s,
    )


def _grow(found: _Search, evidence: tuple[Evidence, ...]) -> tuple[frozenset[str], tuple[Evidence, ...], Stopped]:
    """Adds layers, those first that save most loss for the time they cost, until every gate keeps.

    Costs nearly add up, so each attempt takes as many as should do. One layer at least stays in INT8: without any,
    this would be no INT8 candidate.
    """
    work = found.question.work
    worthy = [name for name, (cost, _, _) in found.costs.items() if cost > 0]
    order = sorted(worthy, key=lambda name: found.costs[name][0] / work[name], reverse=True)
    order = order[: len(work) - 1]
    if not order:
        return frozenset(), evidence, "budget" if found.late else "nothing left"
    size, kept = 0, frozenset[str]()
    while size < len(order) and not found.late and len(found.steps) < MOST_STEPS:
        wanted = found.left(kept) * _affordable(evidence)
        enough = next((n for n in range(len(order)) if found.left(frozenset(order[:n])) <= wanted), len(order))
        size = min(len(order), max(size + 1, enough))
        kept = frozenset(order[:size])
        found.advance(len(found.steps), MOST_STEPS, f"{size} layers in float")
        evidence = found.attempt(kept)
        if all(one.holds for one in evidence):
            return kept, evidence, "gates keep"
    return kept, evidence, "budget" if size < len(order) else "nothing left"


def _affordable(evidence: tuple[Evidence, ...]) -> float:
    """The share of the loss now that the gates allow, as far as their limits tell.

    Gates that follow the loss in no known way (ranks, neighbours) are left to the attempts, one layer more each.
    """
    share = 1.0
    for one in evidence:
        if one.metric in _POWERS and not one.holds:
            found, limit = (one.high, one.limit) if one.comparison == "<=" else (1 - one.low, 1 - one.limit)
            share = min(share, max(0.0, limit / max(found, 1e-12)) ** _POWERS[one.metric])
    return share


def _shrink(
    found: _Search, kept: frozenset[str], evidence: tuple[Evidence, ...]
) -> tuple[frozenset[str], tuple[Evidence, ...]]:
    """Gives layers back to INT8 while every gate still keeps, those first that save least for their work.

    A few refusals end it: who asks often enough is told yes by luck.
    """
    work, refused = found.question.work, 0
    for name in sorted(kept, key=lambda name: found.costs[name][0] / work[name]):
        if found.late or len(found.steps) >= MOST_STEPS or len(kept) == 1 or refused == MOST_REFUSED:
            break
        fewer = kept - {name}
        if fewer in found.tried:
            continue
        found.advance(len(found.steps), MOST_STEPS, f"without {name}")
        tried = found.attempt(fewer)
        if all(one.holds for one in tried):
            kept, evidence = fewer, tried
        else:
            refused += 1
    return kept, evidence


def _cost(name: str, gain: tuple[float, float, float] | None, kept: bool) -> LayerCost:
    cost, low, high = gain or (None, None, None)
    return LayerCost(name=name, cost=cost, low=low, high=high, kept="float" if kept else "int8")
