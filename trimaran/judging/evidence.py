"""Whether a limit is kept beyond luck: what each text says, and how far the texts' mean may be from the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.corpus import kinds_of, shipped_texts
from trimaran.core.distances import Answers, Column
from trimaran.core.margins import foreseen_changes, foreseen_probability_change
from trimaran.core.metrics import Kind, Metric, drawn_rows
from trimaran.core.spec import Frozen
from trimaran.core.tail import tail_rank
from trimaran.core.tasks import Gate, Task
from trimaran.judging import bootstrap
from trimaran.judging.bounds import ALPHA, lower_share

RESAMPLES = 400
# Of both ends; the one end that a limit asks about is then kept with 95 %.
CONFIDENCE = 0.9
# What the judge will have: as many texts as the shipped judging set, and the error that is left to each of the four
# lossy candidates that compete unasked.
JUDGED = len(shipped_texts("judging"))
JUDGES_ALPHA = ALPHA / 4
# A statistic of all rows is costly to take again.
POOLED_RESAMPLES = 100
SEED = 11
# Of a limit. Changes below it are float noise, whose spread foretells nothing.
_TOO_SMALL_TO_COUNT = 1e-3


class Evidence(Frozen):
    """One gate on some texts: the value, its interval, and whether the limit is kept by the end that counts.

    Of a share, `confidence` is what counting so few texts could prove at best. With fewer texts than the judge has,
    `low` is what the judge would prove at worst, by how wide margins are and how far they moved. Where counting proves
    too little, answers without margins hold only with a clean slate.

    Of a tail, `value` and `low` are the bound on these texts. With fewer texts than the judge has, they are a quantile
    of the changes. The judge lets the same share of texts exceed it, and each kind is weighted as the judge has it. So
    one text in three hundred does not decide. `high` is what a judge with `JUDGED` other texts would find at worst.
    """

    metric: str
    value: float
    low: float
    high: float
    comparison: Literal["<=", ">="]
    limit: float
    holds: bool
    confidence: float
    n: int


Way = Callable[[Metric, Gate, Answers, Answers], Evidence]


def evidence_for(
    row: Task, gates: Sequence[Gate], reference: Answers, candidate: Answers, kinds: Sequence[str] = ()
) -> tuple[Evidence, ...]:
    """For each gate that single texts can speak for; others (how rows share a batch) are proven elsewhere.

    `kinds` has the kind of each text; empty: all are of one kind.
    """
    ways: dict[Kind, Way] = {**_EVIDENCE, "tail": partial(_by_tail, kinds)}
    metrics = {metric.name: metric for metric in row.metrics if metric.kind in ways}
    return tuple(
        ways[metrics[gate.metric].kind](metrics[gate.metric], gate, reference, candidate)
        for gate in gates
        if gate.metric in metrics
    )


def mean_interval(values: Column, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Mean and both ends of its bootstrap interval over texts. For paired sides give the differences."""
    bounds = bootstrap.interval(
        lambda texts: values[texts].mean(axis=-1), len(values), confidence=confidence, resamples=RESAMPLES, seed=SEED
    )
    return float(values.mean()), *bounds


def share_interval(hits: int, n: int, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """A share and both ends of its exact (Clopper-Pearson) interval."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return hits / max(1, n), low, high


def _by_mean(metric: Metric, gate: Gate, reference: Answers, candidate: Answers) -> Evidence:
    rows = metric.rows(reference, candidate)
    return _held(gate, *mean_interval(rows), len(rows))


def _by_share(metric: Metric, gate: Gate, reference: Answers, candidate: Answers) -> Evidence:
    agreed = metric.rows(reference, candidate)
    n, hits = len(agreed), round(float(agreed.sum()))
    value, low, high = share_interval(hits, n)
    # One-sided: how sure a clean slate of n texts would make us.
    provable = 1 - gate.limit**n if gate.limit < 1 else 0.0
    holds = low >= gate.limit
    changes = foreseen_changes(reference, candidate, bootstrap_draws) if n < JUDGED else None
    if changes is not None:
        low = _lowest_judged(changes)
        # Where even a clean slate of the judge's texts proves less than the limit, a search can do no better than that.
        holds = low >= min(gate.limit, lower_share(JUDGED, JUDGED, JUDGES_ALPHA))
    elif provable <= (1 + CONFIDENCE) / 2:
        holds = hits == n
    return Evidence(
        metric=gate.metric, value=value, low=low, high=high, comparison=gate.comparison, limit=gate.limit,
        holds=holds, confidence=min(CONFIDENCE, provable), n=n,
    )  # fmt: skip


def _by_resampling(metric: Metric, gate: Gate, reference: Answers, candidate: Answers) -> Evidence:
    """Whole texts are drawn, each with all its rows: the pairs of one text are no independent witnesses."""
    rows = metric.by_text(reference, candidate)
    bounds = bootstrap.interval(
        lambda texts: metric.statistic(drawn_rows(rows, texts)),
        len(rows),
        confidence=CONFIDENCE,
        resamples=POOLED_RESAMPLES,
        seed=SEED,
        one_at_a_time=True,
    )
    return _held(gate, metric.statistic(rows), *bounds, len(rows))


def _by_tail(kinds: Sequence[str], metric: Metric, gate: Gate, reference: Answers, candidate: Answers) -> Evidence:
    """The judge has more texts than the search, so what it will find is foreseen."""
    from scipy.stats import beta

    changes = metric.foreseen(reference, candidate, JUDGED) if metric.foreseen else metric.rows(reference, candidate)
    # The judge decides by its r-th largest change. In one of twenty judgements that is a text as rare as this.
    rank = max(1, tail_rank(JUDGED, JUDGES_ALPHA))
    if len(changes) < JUDGED and np.isfinite(changes).all() and len(changes):
        value = _exceeded_by(changes, kinds, rank / JUDGED)
    else:
        value = metric.statistic(changes)
    rarity = float(beta.ppf((1 - CONFIDENCE) / 2, rank, JUDGED - rank + 1))
    foreseen = foreseen_probability_change(reference, candidate, rarity)
    if foreseen is None:
        foreseen = _rarest(np.maximum(changes, gate.limit * _TOO_SMALL_TO_COUNT), rarity)
    return _held(gate, value, value, max(value, foreseen), len(changes))


def _exceeded_by(changes: Column, kinds: Sequence[str], share: float) -> float:
    """The change that this share of texts exceeds if each kind is as frequent as among the judge's texts."""
    weights = np.ones(len(changes))
    if len(kinds) == len(changes):
        judged, here = _judged_shares(), Counter(kinds)
        # Kinds that the judge does not have are as frequent as they are here.
        weights = np.array([judged[kind] * len(kinds) / here[kind] if kind in judged else 1.0 for kind in kinds])
    order = np.argsort(-changes)
    exceeding = np.cumsum(weights[order]) / weights.sum()
    return float(changes[order[int(np.searchsorted(exceeding, share))]])


@cache
def _judged_shares() -> dict[str, float]:
    return {kind: count / JUDGED for kind, count in Counter(kinds_of(shipped_texts("judging"))).items()}


def _rarest(changes: Column, rarity: float) -> float:
    """The change that a share of `rarity` exceeds if the logarithms of changes are normal: 1−cos nearly is."""
    from scipy.stats import norm

    logarithms = np.log(changes)
    return float(np.exp(logarithms.mean() + norm.ppf(1 - rarity) * logarithms.std()))


# How the interval of a metric is found, by its kind; a tail also wants the kinds of texts. The worst of any text has
# none: it is proven elsewhere.
_EVIDENCE: Mapping[Kind, Way] = {
    "mean": _by_mean,
    "share": _by_share,
    "pooled": _by_resampling,
}


def _lowest_judged(changes: Column) -> float:
    """The agreement that a judge with `JUDGED` further texts would prove at worst: they, too, are a sample."""
    changed = np.random.default_rng(SEED).binomial(JUDGED, np.clip(changes, 0.0, 1.0))
    most = int(np.quantile(changed, (1 + CONFIDENCE) / 2, method="higher"))
    return lower_share(JUDGED - most, JUDGED, JUDGES_ALPHA)


def _held(gate: Gate, value: float, low: float, high: float, n: int) -> Evidence:
    holds = high <= gate.limit if gate.comparison == "<=" else low >= gate.limit
    return Evidence(
        metric=gate.metric, value=value, low=low, high=high, comparison=gate.comparison, limit=gate.limit,
        holds=holds, confidence=CONFIDENCE, n=n,
    )  # fmt: skip


def bootstrap_draws(n: int, turn: int = 0) -> npt.NDArray[np.intp]:
    """Rows of indices, each a sample of n items with replacement; the same for every call, so sides are paired."""
    return bootstrap.draws(n, resamples=RESAMPLES, seed=SEED + turn)
