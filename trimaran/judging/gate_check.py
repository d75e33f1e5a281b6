"""One gate held against what each text said: proven, not proven, or broken.

A bound decides, not the value that these texts happen to have. Example: the mean 1−cos of 460 texts is 0.0011 and the
limit 0.0012, but a mean of 0.0013 would explain the texts as well. The gate is then not proven, and the check says how
many texts would be needed. A candidate that equals eager PyTorch up to float noise needs no statistics: its values
decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimaran.core.artifact import Check, kept
from trimaran.core.distances import Column
from trimaran.core.metrics import Kind, Metric, drawn_rows
from trimaran.core.tail import SHARE, tail_bound, tail_rank, too_few_words
from trimaran.core.tasks import TAILS, Gate
from trimaran.judging import bootstrap
from trimaran.judging.bounds import lower_share, texts_needed, upper_mean

Verdict = Literal["proven", "not proven", "broken"]
# A change counts as at most so many times its limit in a mean: one text then cannot hide what the others say. What
# lies beyond is the business of the gates on tails.
CAP = 20.0
# Where no gate on a tail speaks of the same change, it counts whole. Such losses are mostly zeros and a few large ones,
# and a bold gambler needs fewer texts to see that. Less than all, because one text may lose everything.
_BOLD_BET = 0.9
# The mean of sixty texts has a standard error of about a tenth. A kind exactly at its limit may lie 2.5 of them above:
# by its plain value, one of two such kinds would break its gate by luck.
KIND_SLACK = 1.25
_POOLED_RESAMPLES, _SEED = 400, 11


class GateCheck(Check):
    """`observed` is the value on these texts."""

    # One-sided, at the worse side of the value; None: the value decides.
    bound: float | None = None
    # None in reports that were written before there were bounds: the value decided.
    verdict: Verdict | None = None
    # Texts (or labelled items) that spoke, and how many would prove the gate if further ones are like them.
    n: int | None = None
    needs: int | None = None
    texts: str = "texts"
    # The kind of text that breaks the gate; empty: all texts.
    kind: str = ""

    @property
    def holds(self) -> bool:
        return super().holds if self.verdict is None else self.verdict == "proven"

    @property
    def needs_words(self) -> str:
        """`needs 832 texts, has 460`."""
        return f"needs {self.needs:,} {self.texts}, has {self.n:,}" if self.needs is not None else ""


def capped_at(metric: Metric, gate: Gate) -> float:
    """The most that one text counts in a mean: a distance, or what is missing to 1."""
    return CAP * gate.limit if metric.most is None else metric.most


class Bound(NamedTuple):
    value: float
    # None: no number of texts like these would prove the gate.
    needs: int | None
    # Texts beyond the limit, where a share of them decides; a mean is broken by its value.
    broken: bool


def point_check(gate: Gate, value: float, *, texts: int = 0) -> GateCheck:
    """By the value alone: what is no sample of texts, or equals the reference up to float noise."""
    finite = math.isfinite(value)
    return GateCheck(
        name=gate.metric,
        # Infinity and NaN are no numbers in JSON; as words they keep to no limit.
        observed=value if finite else "not finite",
        limit=gate.limit,
        comparison=gate.comparison,
        verdict="proven" if finite and kept(value, gate.comparison, gate.limit) else "broken",
        detail=_few_words(gate, texts),
    )


def gate_check(metric: Metric, gate: Gate, rows: Column, *, alpha: float | None) -> GateCheck:
    """`alpha` None: the candidate equals the reference up to float noise, and values decide."""
    value, n = metric.statistic(rows), len(rows)
    check = point_check(gate, value, texts=n).model_copy(update={"n": n, "texts": metric.texts})
    if alpha is None or metric.kind == "worst" or not (math.isfinite(value) and _finite(metric, rows)):
        return check
    bound = _BOUNDS[metric.kind](metric, gate, rows, alpha)
    proves = n > 0 and kept(bound.value, gate.comparison, gate.limit)
    # With too few texts the bound of a tail is its largest change, which proves less than 1 %.
    proves = proves and (metric.kind != "tail" or tail_rank(n, alpha) > 0)
    proves = proves and n >= metric.fewest
    verdict: Verdict = "broken" if bound.broken else "proven" if proves else "not proven"
    needs = None if verdict != "not proven" or bound.needs is None else max(bound.needs, metric.fewest)
    return check.model_copy(update={"bound": bound.value, "verdict": verdict, "needs": needs})


def kinds_of_answers(kinds: NDArray[np.str_], answers: int) -> NDArray[np.str_]:
    """Return the kind of each answer. An answer may need several judged texts in a row, which have the same kind."""
    return kinds[:: max(1, len(kinds) // max(1, answers))][:answers]


def kind_limit(metric: Metric, gate: Gate, *, slack: float = KIND_SLACK) -> float:
    """The limit of one kind of text: of a mean, `slack` times as far from a perfect value."""
    perfect = 1.0 if metric.at_least else 0.0
    return perfect + slack * (gate.limit - perfect) if metric.kind in ("mean", "pooled") else gate.limit


def kind_breaks(metric: Metric, gate: Gate, rows: Column, alpha: float, *, slack: float = KIND_SLACK) -> bool:
    """Whether one kind of text breaks the gate.

    Sixty texts prove no share and no tail. So a mean must keep `slack` times the limit by its value. A share or a
    tail is broken by a count of texts beyond the limit that has a chance of at most `alpha` if the limit is kept. For a
    share of 1 % this is 3 of 60.
    """
    from scipy.stats import binom

    if not _finite(metric, rows):
        return True
    if metric.kind in ("mean", "pooled"):
        perfect = 1.0 if metric.at_least else 0.0
        # A correlation within one kind may not exist: all its texts may have the same similarities.
        limit = kind_limit(metric, gate, slack=slack)
        return len(rows) > 0 and abs(metric.statistic(rows) - perfect) > abs(limit - perfect)
    misses, share = _misses(metric, gate, rows)
    return bool(misses) and float(binom.sf(misses - 1, len(rows), share)) <= alpha


def _finite(metric: Metric, rows: Column) -> bool:
    """Whether every text has a number. Of the pairs of a pooled metric, NaN marks those that do not count."""
    return metric.kind == "pooled" or bool(np.isfinite(rows).all())


def _misses(metric: Metric, gate: Gate, rows: Column) -> tuple[int, float]:
    """Texts beyond the limit, and the share of them that the gate allows."""
    if metric.kind == "tail":
        return int((rows > gate.limit).sum()), SHARE
    return round(float((1.0 - rows).sum())), 1.0 - gate.limit


def _of_mean(metric: Metric, gate: Gate, rows: Column, alpha: float) -> Bound:
    """More is better: the bound is taken of what is missing to 1."""
    losses, limit = (1.0 - rows, 1.0 - gate.limit) if metric.at_least else (np.maximum(rows, 0.0), gate.limit)
    mean = float(losses.mean()) if len(losses) else 0.0
    if limit <= 0:
        return Bound(metric.statistic(rows), None, mean > limit)
    bets = {} if metric.most is None else {"largest_bet": _BOLD_BET}
    # Outliers may take the plain mean above the bound of the capped one.
    upper = max(mean, upper_mean(losses, cap=capped_at(metric, gate), alpha=alpha, **bets))
    # The distance from the mean to the bound shrinks with the square root of the number of texts, or faster.
    needs = math.ceil(max(1, len(rows)) * ((upper - mean) / (limit - mean)) ** 2) if mean < limit else None
    return Bound(1.0 - upper if metric.at_least else upper, needs, mean > limit)


def _of_share(metric: Metric, gate: Gate, rows: Column, alpha: float) -> Bound:
    misses, share = _misses(metric, gate, rows)
    n = len(rows)
    return Bound(lower_share(n - misses, n, alpha), texts_needed(misses, n, share, alpha), misses > share * n)


def _of_tail(metric: Metric, gate: Gate, rows: Column, alpha: float) -> Bound:
    misses, share = _misses(metric, gate, rows)
    n = len(rows)
    return Bound(tail_bound(rows, alpha), texts_needed(misses, n, share, alpha), misses > share * n)


def _of_pooled(metric: Metric, gate: Gate, rows: Column, alpha: float) -> Bound:
    """Whole texts are drawn, each with all its rows: the pairs of one text are no independent witnesses."""
    low, high = bootstrap.interval(
        lambda texts: metric.statistic(drawn_rows(rows, texts)),
        len(rows),
        confidence=1 - 2 * alpha,
        resamples=_POOLED_RESAMPLES,
        seed=_SEED,
        one_at_a_time=True,
    )
    broken = not kept(metric.statistic(rows), gate.comparison, gate.limit)
    return Bound(low if metric.at_least else high, None, broken)


_BOUNDS: Mapping[Kind, Callable[[Metric, Gate, Column, float], Bound]] = {
    "mean": _of_mean,
    "share": _of_share,
    "tail": _of_tail,
    "pooled": _of_pooled,
}


def _few_words(gate: Gate, texts: int) -> str:
    words = too_few_words(texts) if gate.metric in TAILS and texts else ""
    return f"({words})" if words else ""
