"""Finds which layers must stay in float for the gates to be kept, by trying them on held-out text.

Four steps. First all layers run in INT8: if every gate is kept, nothing has to stay in float. Then each layer alone
runs in INT8, which shows what it costs. Then the layers that save most loss for their work are put into float, until
every gate is kept (`_grow`). At last those that save least are given back to INT8 while every gate is still kept
(`_shrink`).

The budget is time in which this process worked. If it ends while layers are measured, the others count with the cost
that is suspected by their encodings. One set of layers is tried even then: an untried result would be a guess.

Every kind of text must keep the mean gates, not only the mean over all texts. So the worst kind decides whether a gate
is kept, and a layer's cost counts most on the kinds that lose most.

Example: the loss is 0.038 with all layers in INT8, the limit is 0.005. Alone, layers a, b, c and d cost 0.001, 0.02,
0.002 and 0.015, so b and d go into float: what is left costs 0.003, and the gate is kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.proof_effort import USUAL
from trimaran.core.tasks import Gate, task
from trimaran.judging.evidence import Evidence, evidence_for, mean_interval
from trimaran.judging.gate_check import KIND_SLACK, kinds_of_answers
from trimaran.judging.sensitivity import LayerCost, SearchEnd, SearchStep, Sensitivity

# Raise this when the search decides otherwise on the same texts: what an older one made is then made anew.
SEARCH_VERSION = 5
# The names of the layers in float.
Layers = frozenset[str]
AnswersOf = Callable[[Layers], Answers]
Advance = Callable[[int, int, str], None]
SecondsClock = Callable[[], float]
# After the layers were measured, more trials than this gain nothing that is worth waiting for.
MOST_STEPS = 12
MOST_REFUSALS = 2
# Of the budget: measuring single layers ends here, so that sets of layers can still be tried.
MEASURING_SHARE = 0.6
# If only one set can still be tried, it may cost this share of what the gates allow.
LAST_CHANCE = 0.7
# On a busy machine the budget lasts longer, but at most this many times as long by the wall clock.
MOST_STRETCH = 4.0
# The mean of a kind with fewer held-out texts than this says too little of the kind.
FEWEST_OF_KIND = 6
# By metric: the power with which the loss follows it. Noise twice as large moves a probability twice as far, and has
# four times the squared margin.
_POWERS = {
    "mean_cosine_distance": 1,
    "tail_cosine_distance": 1,
    "mean_weight_distance": 1,
    "tail_weight_distance": 1,
    "mean_token_distance": 1,
    "tail_token_distance": 1,
    "tail_similarity_change": 2,
    "mean_score_change": 1,
    "mean_probability_change": 2,
    "tail_probability_change": 2,
    "label_agreement": 2,
}


@dataclass(frozen=True)
class SearchQuestion:
    """What the search can ask, and what its answers are compared with."""

    task: str
    gates: Sequence[Gate]
    # The float graph's answers to the held-out texts, and the answers with some layers in float.
    reference: Answers
    answer: AnswersOf
    # The same for some of the texts, and quicker: it shows what single layers cost, and decides nothing.
    quick_reference: Answers
    quick_answer: AnswersOf
    # By layer, in the graph's order: how much it costs in float.
    work: Mapping[str, float]
    texts: int
    texts_digest: str
    # The kind of each held-out text, and of each quick one; empty: all are of one kind.
    kinds: Sequence[str] = ()
    quick_kinds: Sequence[str] = ()


@dataclass
class _Search:
    question: SearchQuestion
    deadline_s: float
    # By layer: how much it may cost, by its encoding alone. Only the proportions count.
    suspected: Mapping[str, float]
    advance: Advance
    clock: SecondsClock
    # With all layers in INT8: the mean loss of all texts, and by kind.
    mean: float = 0.0
    kind_means: Mapping[str, float] = field(default_factory=dict)
    # By layer: its cost alone in INT8, with both ends of its interval.
    costs: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    steps: list[SearchStep] = field(default_factory=list)
    tried: set[Layers] = field(default_factory=set)

    @property
    def late(self) -> bool:
        return self.clock() >= self.deadline_s

    @property
    def exhausted(self) -> bool:
        return self.late or len(self.steps) >= MOST_STEPS

    def attempt(self, kept: Layers) -> tuple[Evidence, ...]:
        """Try these layers in float on all held-out texts."""
        self.tried.add(kept)
        outputs = self.question.answer(kept)
        row = task(self.question.task)
        evidence = evidence_for(row, self.question.gates, self.question.reference, outputs, self.question.kinds)
        evidence = tuple(_with_worst_kind(gate, self.question, outputs) for gate in evidence)
        losses = row.loss.by_text(self.question.reference, outputs)
        value, _, high = mean_interval(losses)
        self.steps.append(SearchStep(kept=len(kept), value=value, high=high, holds=_all_hold(evidence)))
        if not kept:
            self.mean, self.kind_means = value, kind_means(losses, self.question.kinds)
        return evidence

    def measure(self, deadline_s: float) -> None:
        """Measure what each layer costs if it alone is in INT8, the most suspected first, until the deadline.

        Putting each layer alone into float instead would be hidden by the noise of all others.
        """
        names = sorted(self.suspected, key=self.suspected.__getitem__, reverse=True)
        everything = frozenset(self.question.work)
        base = self._quick_losses(everything)
        losses: dict[str, Column] = {}
        for done, name in enumerate(names):
            if self.clock() >= deadline_s:
                break
            self.advance(done, len(names), f"{name} alone in INT8")
            losses[name] = self._quick_losses(everything - {name}) - base
        # The quick texts lose more or less than all texts do. If every layer was measured, the costs are scaled so that
        # they add up to the loss of all texts.
        total = sum(max(0.0, float(column.mean())) for column in losses.values())
        ratio = self.mean / total if total > 0 and len(losses) == len(names) else 1.0
        self.costs = {name: mean_interval(column * ratio) for name, column in losses.items()}

    def _quick_losses(self, kept: Layers) -> Column:
        """Return each quick text's loss, times how much more its kind loses than the mean."""
        question = self.question
        losses = task(question.task).loss.by_text(question.quick_reference, question.quick_answer(kept))
        if len(question.quick_kinds) != len(losses) or not self.mean > 0:
            return losses
        return losses * [self.kind_means.get(kind, self.mean) / self.mean for kind in question.quick_kinds]

    def expected_costs(self) -> dict[str, float]:
        """Return the cost of every layer: measured, or suspected and scaled to those that were measured."""
        costs = {name: max(0.0, cost) for name, (cost, _, _) in self.costs.items()}
        measured, suspected = sum(costs.values()), sum(self.suspected[name] for name in costs)
        scale = measured / suspected if measured > 0 and suspected > 0 else 1.0
        return {name: scale * weight for name, weight in self.suspected.items()} | costs

    def gain(self, name: str) -> float:
        """Return the loss that a layer in float saves, for its work."""
        return self.expected_costs()[name] / self.question.work[name]

    def share_left(self, kept: Layers) -> float:
        """Return the share of all costs that remains when these layers are in float."""
        costs = self.expected_costs()
        total = sum(costs.values())
        return sum(cost for name, cost in costs.items() if name not in kept) / total if total > 0 else 1.0


def search(
    question: SearchQuestion,
    *,
    budget_s: float,
    suspected: Mapping[str, float],
    advance: Advance,
    clock: SecondsClock | None = None,
    reporting_s: float = USUAL.reporting_s,
) -> tuple[Layers, Sensitivity]:
    """Return the layers to keep in float, and how that was found.

    `suspected` has how much each layer may cost, by its encoding alone: a short budget is spent on the worst. If every
    gate is kept with all layers in INT8, their costs are only reported, and measured for at most `reporting_s`.
    """
    clock = clock or working_clock()
    begun_s = clock()
    state = _Search(question, begun_s + budget_s, suspected, advance, clock)
    kept: Layers = frozenset()
    evidence = state.attempt(kept)
    all_int8 = _all_hold(evidence)
    if not all_int8 or reporting_s > 0:
        state.measure(clock() + reporting_s if all_int8 else begun_s + MEASURING_SHARE * budget_s)
    stopped: SearchEnd = "gates keep"
    if not all_int8:
        kept, evidence, stopped = _grow(state, evidence)
        if stopped == "gates keep":
            kept, evidence = _shrink(state, kept, evidence)
    return kept, Sensitivity(
        metric=task(question.task).loss.title,
        texts=question.texts,
        texts_digest=question.texts_digest,
        layers=tuple(_layer_cost(state, name, kept) for name in question.work),
        steps=tuple(state.steps),
        gates=evidence,
        stopped=stopped,
        seconds=round(clock() - begun_s, 1),
        budget_s=budget_s,
    )


def working_clock() -> SecondsClock:
    """Return a clock of the seconds in which this process worked.

    While other processes hold the CPU, only its own CPU time counts, so that a busy machine does not end a search
    before it has tried anything. On an idle machine at least one thread always works, and the wall clock counts.
    """
    begun_s, begun_cpu_s = time.monotonic(), time.process_time()

    def worked_s() -> float:
        wall_s, cpu_s = time.monotonic() - begun_s, time.process_time() - begun_cpu_s
        return min(wall_s, max(cpu_s, wall_s / MOST_STRETCH))

    return worked_s


def _grow(state: _Search, evidence: tuple[Evidence, ...]) -> tuple[Layers, tuple[Evidence, ...], SearchEnd]:
    """Put layers into float until every gate is kept, those first that save most loss for their work.

    Costs nearly add up, so each attempt takes as many layers as should be enough. At least one layer stays in INT8:
    without any, this would be no INT8 candidate.
    """
    costly = [name for name, cost in state.expected_costs().items() if cost > 0]
    order = sorted(costly, key=state.gain, reverse=True)[: len(state.question.work) - 1]
    size, kept = 0, frozenset[str]()
    while size < len(order) and (size == 0 or not state.exhausted):
        target = state.share_left(kept) * _affordable_share(evidence) * (LAST_CHANCE if state.late else 1.0)
        sizes = range(len(order))
        enough = next((size for size in sizes if state.share_left(frozenset(order[:size])) <= target), len(order))
        size = min(len(order), max(size + 1, enough))
        kept = frozenset(order[:size])
        state.advance(len(state.steps), MOST_STEPS, f"{size} layers in float")
        evidence = state.attempt(kept)
        if _all_hold(evidence):
            return kept, evidence, "gates keep"
    if size == len(order):
        return kept, evidence, "nothing left"
    return kept, evidence, "budget" if state.late else "trials"


def _affordable_share(evidence: tuple[Evidence, ...]) -> float:
    """Return the share of the present loss that the gates allow.

    Gates that follow the loss in no known way (ranks, neighbours) do not count: each attempt adds one layer at least.
    """
    share = 1.0
    for gate in evidence:
        if gate.metric in _POWERS and not gate.holds:
            at_most = gate.comparison == "<="
            observed, limit = (gate.high, gate.limit) if at_most else (1 - gate.low, 1 - gate.limit)
            share = min(share, max(0.0, limit / max(observed, 1e-12)) ** _POWERS[gate.metric])
    return share


def _shrink(state: _Search, kept: Layers, evidence: tuple[Evidence, ...]) -> tuple[Layers, tuple[Evidence, ...]]:
    """Give layers back to INT8 while every gate is kept, those first that save least for their work.

    Stop after two refusals: repeated testing would eventually pass by chance.
    """
    refusals = 0
    for name in sorted(kept, key=state.gain):
        if state.exhausted or len(kept) == 1 or refusals == MOST_REFUSALS:
            break
        fewer = kept - {name}
        if fewer in state.tried:
            continue
        state.advance(len(state.steps), MOST_STEPS, f"without {name}")
        attempt = state.attempt(fewer)
        if _all_hold(attempt):
            kept, evidence = fewer, attempt
        else:
            refusals += 1
    return kept, evidence


def kind_means(rows: Column, kinds: Sequence[str], *, less_errors: float = 0.0) -> dict[str, float]:
    """Return the mean of each kind that has enough texts, less so many standard errors.

    There is none where a row is no text and no answer to several.
    """
    column = kinds_of_answers(np.asarray(kinds), len(rows))
    if len(column) != len(rows):
        return {}
    counts = {kind: count for kind, count in Counter(column.tolist()).items() if count >= FEWEST_OF_KIND}
    texts = {kind: rows[column == kind] for kind in counts}
    return {
        kind: float(rows.mean() - less_errors * rows.std(ddof=1) / np.sqrt(len(rows))) for kind, rows in texts.items()
    }


def _with_worst_kind(gate: Evidence, question: SearchQuestion, outputs: Answers) -> Evidence:
    """Let the worst kind count too, where a mean must stay small. The judge allows a kind `KIND_SLACK` times the limit.

    Of most kinds the judge has several times as many texts, so a single text moves its mean less: a mean counts less
    its standard error. `high` becomes at least that, without the slack.
    """
    metric = task(question.task).metric(gate.metric)
    if metric is None or metric.kind != "mean" or gate.comparison != "<=":
        return gate
    means = kind_means(metric.by_text(question.reference, outputs), question.kinds, less_errors=1.0)
    worst = max(means.values(), default=0.0) / KIND_SLACK
    return gate.model_copy(update={"high": max(gate.high, worst), "holds": gate.holds and worst <= gate.limit})


def _all_hold(evidence: tuple[Evidence, ...]) -> bool:
    return all(gate.holds for gate in evidence)


def _layer_cost(state: _Search, name: str, kept: Layers) -> LayerCost:
    cost, low, high = state.costs.get(name, (None, None, None))
    return LayerCost(name=name, cost=cost, low=low, high=high, kept="float" if name in kept else "int8")
