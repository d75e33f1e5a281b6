"""Finds which layers must stay in float for the gates to keep, by trying them on held-out text."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trimaran.evidence import LOSSES, Column, Evidence, evidence_for, mean_interval, text_losses
from trimaran.parity import Outputs
from trimaran.sensitivity import LayerCost, SearchStep, Sensitivity, Stopped
from trimaran.tasks import Gate

Answer = Callable[[frozenset[str]], Outputs]
Advance = Callable[[int, int, str], None]
Clock = Callable[[], float]
# More trials than this after the layers were measured bring nothing that a person would wait for.
MOST_STEPS = 12


@dataclass(frozen=True)
class Question:
    """`answer(kept)` runs the held-out texts with those layers in float; `work` is what a layer costs in float.

    `quick_answer` does the same for some of the texts, `quick_reference` being the float graph's answers to those: it
    tells layers apart, and decides nothing.
    """

    task: str
    gates: Sequence[Gate]
    reference: Outputs
    answer: Answer
    quick_reference: Outputs
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
    gains: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    steps: list[SearchStep] = field(default_factory=list)

    @property
    def late(self) -> bool:
        return self.clock() >= self.deadline_s

    def quick_losses(self, *kept: str) -> Column:
        question = self.question
        return text_losses(question.task, question.quick_reference, question.quick_answer(frozenset(kept)))

    def attempt(self, kept: frozenset[str]) -> tuple[Evidence, ...]:
        found = self.question.answer(kept)
        losses = text_losses(self.question.task, self.question.reference, found)
        evidence = evidence_for(self.question.gates, self.question.reference, found)
        value, _, high = mean_interval(losses)
        holds = all(one.holds for one in evidence)
        self.steps.append(SearchStep(kept=len(kept), value=value, high=high, holds=holds))
        if not kept:
            self.mean = value
        return evidence

    def measure(self, names: Sequence[str]) -> None:
        """What each layer alone costs; only the end of the budget leaves any out."""
        base = self.quick_losses()
        # The quick texts' loss is another than all texts': gains are told in terms of all.
        ratio = self.mean / max(float(base.mean()), 1e-12)
        for done, name in enumerate(names):
            if self.late:
                return
            self.advance(done, len(names), f"{name} in float")
            self.gains[name] = mean_interval((base - self.quick_losses(name)) * ratio)


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
    found.measure(first)
    stopped: Stopped = "gates keep"
    if not all(one.holds for one in evidence):
        kept, evidence, stopped = _grow(found, evidence)
        if stopped == "gates keep":
            kept, evidence = _shrink(found, kept, evidence)
    layers = tuple(_cost(name, found.gains.get(name), name in kept) for name in question.work)
    return kept, Sensitivity(
        metric=LOSSES[question.task][0],
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

    Gains nearly add up, so the first attempt takes as many as should do; each later one takes more.
    """
    work = found.question.work
    worthy = [name for name, (gain, _, _) in found.gains.items() if gain > 0]
    order = sorted(worthy, key=lambda name: found.gains[name][0] / work[name], reverse=True)
    if not order:
        return frozenset(), evidence, "budget" if found.late else "nothing left"
    size, kept = 0, frozenset[str]()
    while size < len(order) and not found.late and len(found.steps) < MOST_STEPS:
        size = min(len(order), max(size + 1, size + size // 2, _predicted(found, order, evidence)))
        kept = frozenset(order[:size])
        found.advance(len(found.steps), MOST_STEPS, f"{size} layers in float")
        evidence = found.attempt(kept)
        if all(one.holds for one in evidence):
            return kept, evidence, "gates keep"
    return kept, evidence, "budget" if size < len(order) else "nothing left"


def _predicted(found: _Search, order: Sequence[str], evidence: tuple[Evidence, ...]) -> int:
    """How many of the layers it takes for the mean loss to fall below its limit, if gains add up.

    Gates that are no mean loss (ranks, labels) give no such number: they are left to the attempts, one layer more each.
    """
    limits = [one for one in evidence if one.comparison == "<=" and one.metric.startswith("mean_")]
    if not limits:
        return 0
    spread = max(one.high / max(one.value, 1e-12) for one in limits)
    wanted = min(one.limit for one in limits) / spread
    left = found.mean
    for size, name in enumerate(order):
        if left <= wanted:
            return size
        left -= found.gains[name][0]
    return len(order)


def _shrink(
    found: _Search, kept: frozenset[str], evidence: tuple[Evidence, ...]
) -> tuple[frozenset[str], tuple[Evidence, ...]]:
    """Gives layers back to INT8 while every gate still keeps, the most expensive first."""
    for name in sorted(kept, key=lambda name: found.question.work[name], reverse=True):
        if found.late or len(found.steps) >= MOST_STEPS or len(kept) == 1:
            break
        found.advance(len(found.steps), MOST_STEPS, f"without {name}")
        fewer = kept - {name}
        tried = found.attempt(fewer)
        if all(one.holds for one in tried):
            kept, evidence = fewer, tried
    return kept, evidence


def _cost(name: str, gain: tuple[float, float, float] | None, kept: bool) -> LayerCost:
    cost, low, high = gain or (None, None, None)
    return LayerCost(name=name, cost=cost, low=low, high=high, kept="float" if kept else "int8")
