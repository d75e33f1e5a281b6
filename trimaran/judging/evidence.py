"""Whether a limit is kept beyond luck: what each text says, and how far the texts' mean may be from the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.parity import (
    Floats,
    Outputs,
    best_span,
    cosine_distances,
    label_probabilities,
    largest_probability_changes,
    nearest_rows,
    present_tokens,
    runs_of_labels,
    same_labels,
    similarities,
    spearman,
)
from trimaran.core.spec import Frozen
from trimaran.core.tail import tail_bound
from trimaran.core.tasks import Gate
from trimaran.judging.margins import foreseen_changes, foreseen_probability_change, squared_moves
from trimaran.runtime.text import softmax

RESAMPLES = 400
# Of both ends; the one end that a limit asks about is then kept with 95 %.
CONFIDENCE = 0.9
# As many as the shipped judging set has.
JUDGED = 460
_SEED = 11
# Of a limit. Changes below it are float noise, whose spread foretells nothing.
_TOO_SMALL_TO_COUNT = 1e-3
Column = npt.NDArray[np.float64]


class Evidence(Frozen):
    """One gate on some texts: the value, its interval, and whether the limit is kept by the end that counts.

    Where so few texts cannot prove a share (no label may change, and still it might be luck), `confidence` is what
    counting them could prove at best; `low` is then what a judge with other texts would find at worst, by how wide
    margins are and how far they moved, and answers without margins hold only with a clean slate.

    Of a tail, `value` and `low` are the bound on these texts; `high` is what a judge with `JUDGED` other texts would
    find at worst.
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


def evidence_for(gates: Sequence[Gate], reference: Outputs, candidate: Outputs) -> tuple[Evidence, ...]:
    """For each gate that single texts can speak for; others (how rows share a batch) are proven elsewhere."""
    return tuple(_EVIDENCE[gate.metric](gate, reference, candidate) for gate in gates if gate.metric in _EVIDENCE)


def mean_interval(values: Column, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Mean and both ends of its bootstrap interval over texts. For paired sides give the differences."""
    draws = bootstrap_draws(len(values))
    means = values[draws].mean(axis=1)
    ends = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(values.mean()), float(ends[0]), float(ends[1])


def share_interval(hits: int, n: int, *, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """A share and both ends of its exact (Clopper-Pearson) interval."""
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return hits / max(1, n), low, high


def text_losses(task: str, reference: Outputs, candidate: Outputs) -> Column:
    """How far each text's answer moved, in the distance of the task."""
    return LOSSES[task][1](reference, candidate)


def _rows_apart(reference: Outputs, candidate: Outputs) -> Column:
    name = next(iter(reference))
    return np.asarray(cosine_distances(reference[name], candidate[name]), np.float64)


def _probabilities_apart(reference: Outputs, candidate: Outputs) -> Column:
    name = next(iter(reference))
    sides = label_probabilities(name, reference[name]), label_probabilities(name, candidate[name])
    return np.asarray(np.abs(sides[0] - sides[1]).mean(axis=-1), np.float64)


def _by_token(distance: Callable[[Floats, Floats], Floats], *names: str) -> Callable[[Outputs, Outputs], Column]:
    def losses(reference: Outputs, candidate: Outputs) -> Column:
        total = np.zeros(len(reference[names[0]]))
        for name in names:
            for index, (wanted, found) in enumerate(zip(reference[name], candidate[name], strict=True)):
                total[index] += float(np.mean(distance(*present_tokens(wanted, found)))) / len(names)
        return total

    return losses


def _token_probabilities(wanted: Floats, found: Floats) -> Floats:
    return np.asarray(np.abs(softmax(wanted) - softmax(found)))


def _position_probabilities(wanted: Floats, found: Floats) -> Floats:
    """Scores of places in one text, each against all others."""
    return np.asarray(np.abs(softmax(wanted[None]) - softmax(found[None])).sum(axis=-1) / 2)


def _numbers_apart(name: str) -> Callable[[Outputs, Outputs], Column]:
    def losses(reference: Outputs, candidate: Outputs) -> Column:
        delta = np.abs(reference[name].astype(np.float64) - candidate[name])
        return np.asarray(delta.reshape(len(delta), -1).mean(axis=1))

    return losses


# What a task's loss is called, and how it is found for each text.
LOSSES: Mapping[str, tuple[str, Callable[[Outputs, Outputs], Column]]] = {
    "embedding": ("1−cos", _rows_apart),
    "sparse-embedding": ("1−cos", _rows_apart),
    "feature-extraction": ("1−cos by token", _by_token(cosine_distances, "token_embeddings")),
    "text-classification": ("(Δ margin)²", squared_moves),
    "zero-shot-classification": ("(Δ margin)²", squared_moves),
    "token-classification": ("|Δ probability| by token", _by_token(_token_probabilities, "token_logits")),
    "question-answering": (
        "probability moved between places",
        _by_token(_position_probabilities, "start_logits", "end_logits"),
    ),
    "fill-mask": ("|Δ probability| by token", _by_token(lambda a, b: np.abs(a - b), "token_scores")),
    "rerank": ("|Δ score|", _numbers_apart("score")),
}


def _mean_gate(losses: Callable[[Outputs, Outputs], Column]) -> Callable[[Gate, Outputs, Outputs], Evidence]:
    return lambda gate, reference, candidate: _held(
        gate, *mean_interval(losses(reference, candidate)), len(reference[next(iter(reference))])
    )


def _share_gate(agreements: Callable[[Outputs, Outputs], Column]) -> Callable[[Gate, Outputs, Outputs], Evidence]:
    def evidence(gate: Gate, reference: Outputs, candidate: Outputs) -> Evidence:
        agreed = agreements(reference, candidate)
        n, hits = len(agreed), int(agreed.sum())
        value, low, high = share_interval(hits, n)
        # One-sided: how sure a clean slate of n texts would make us.
        provable = 1 - gate.limit**n if gate.limit < 1 else 0.0
        holds = low >= gate.limit
        if provable <= (1 + CONFIDENCE) / 2:
            changes = foreseen_changes(reference, candidate, bootstrap_draws)
            low = low if changes is None else _lowest_judged(changes)
            holds = hits == n if changes is None else low >= gate.limit
        return Evidence(
            metric=gate.metric, value=value, low=low, high=high, comparison=gate.comparison, limit=gate.limit,
            holds=holds, confidence=min(CONFIDENCE, provable), n=n,
        )  # fmt: skip

    return evidence


def _tail_gate(losses: Callable[[Outputs, Outputs], Column]) -> Callable[[Gate, Outputs, Outputs], Evidence]:
    """The judge decides by its largest change, and has more texts than the search: so that is foreseen."""

    def evidence(gate: Gate, reference: Outputs, candidate: Outputs) -> Evidence:
        changes = losses(reference, candidate)
        value = tail_bound(changes)
        # A text as rare as this is the largest of the judge's in one of twenty judgements.
        rarity = 1 - ((1 + CONFIDENCE) / 2) ** (1 / JUDGED)
        foreseen = foreseen_probability_change(reference, candidate, rarity)
        if foreseen is None:
            foreseen = _rarest(np.maximum(changes, gate.limit * _TOO_SMALL_TO_COUNT), rarity)
        return _held(gate, value, value, max(value, foreseen), len(changes))

    return evidence


def _rarest(changes: Column, rarity: float) -> float:
    """The change that a share of `rarity` exceeds if the logarithms of changes are normal: 1−cos nearly is."""
    from scipy.stats import norm

    logarithms = np.log(changes)
    return float(np.exp(logarithms.mean() + norm.ppf(1 - rarity) * logarithms.std()))


def _lowest_judged(changes: Column) -> float:
    """The agreement that a judge with `JUDGED` further texts would find at worst: they, too, are a sample."""
    found = np.random.default_rng(_SEED).binomial(JUDGED, np.clip(changes, 0.0, 1.0))
    return (JUDGED - int(np.quantile(found, (1 + CONFIDENCE) / 2, method="higher"))) / JUDGED


def _held(gate: Gate, value: float, low: float, high: float, n: int) -> Evidence:
    holds = high <= gate.limit if gate.comparison == "<=" else low >= gate.limit
    return Evidence(
        metric=gate.metric, value=value, low=low, high=high, comparison=gate.comparison, limit=gate.limit,
        holds=holds, confidence=CONFIDENCE, n=n,
    )  # fmt: skip


def _overlaps(reference: Outputs, candidate: Outputs) -> Column:
    name = next(iter(reference))
    mine, theirs = nearest_rows(reference[name]), nearest_rows(candidate[name])
    shared = [len(np.intersect1d(a, b, assume_unique=True)) / len(a) for a, b in zip(mine, theirs, strict=True)]
    return np.asarray(shared)


def _rank_gate(gate: Gate, reference: Outputs, candidate: Outputs) -> Evidence:
    """Whole texts are drawn, each with its pairs: a text's pairs are no independent witnesses."""
    name = next(iter(reference))
    wanted, found = reference[name], candidate[name]
    if name == "score":
        sides = wanted.reshape(-1, 1), found.reshape(-1, 1)
    else:
        near = nearest_rows(wanted)
        strangers = np.random.default_rng(0).integers(len(wanted), size=near.shape)
        others = np.concatenate([near, strangers], axis=1)
        rows = np.arange(len(wanted))[:, None]
        sides = similarities(wanted)[rows, others], similarities(found)[rows, others]
    value = spearman(sides[0].ravel(), sides[1].ravel())
    draws = bootstrap_draws(len(wanted))[: RESAMPLES // 4]
    values = [spearman(sides[0][draw].ravel(), sides[1][draw].ravel()) for draw in draws]
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return _held(gate, value, float(low), float(high), len(wanted))


def _entity_gate(gate: Gate, reference: Outputs, candidate: Outputs) -> Evidence:
    counts = np.asarray(
        [
            (2 * len(a & b), len(a) + len(b))
            for a, b in (
                (runs_of_labels(before), runs_of_labels(after))
                for before, after in zip(reference["token_logits"], candidate["token_logits"], strict=True)
            )
        ],
        np.float64,
    )
    draws = bootstrap_draws(len(counts))
    values = counts[draws, 0].sum(axis=1) / np.maximum(1, counts[draws, 1].sum(axis=1))
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    value = counts[:, 0].sum() / max(1.0, counts[:, 1].sum())
    return _held(gate, float(value), float(low), float(high), len(counts))


def _same_span(reference: Outputs, candidate: Outputs) -> Column:
    spans = [
        [best_span(start, end) for start, end in zip(side["start_logits"], side["end_logits"], strict=True)]
        for side in (reference, candidate)
    ]
    return np.asarray([a == b for a, b in zip(*spans, strict=True)], np.float64)


def _same_label(reference: Outputs, candidate: Outputs) -> Column:
    return same_labels(reference, candidate).astype(np.float64)


def _same_token(reference: Outputs, candidate: Outputs) -> Column:
    return _by_token(lambda a, b: (a[..., 0] == b[..., 0]).astype(np.float64), "token_ids")(reference, candidate)


def _heaviest(reference: Outputs, candidate: Outputs) -> Column:
    tops = [np.argsort(-side["weights"], axis=-1)[:, :10] for side in (reference, candidate)]
    return np.asarray([len(np.intersect1d(a, b)) / len(a) for a, b in zip(*tops, strict=True)])


def _probability_losses(reference: Outputs, candidate: Outputs) -> Column:
    kinds = {"token_logits": "token-classification", "token_scores": "fill-mask", "start_logits": "question-answering"}
    task = next((kinds[name] for name in reference if name in kinds), None)
    return text_losses(task, reference, candidate) if task else _probabilities_apart(reference, candidate)


def _distance_losses(reference: Outputs, candidate: Outputs) -> Column:
    return text_losses("feature-extraction" if "token_embeddings" in reference else "embedding", reference, candidate)


_EVIDENCE: Mapping[str, Callable[[Gate, Outputs, Outputs], Evidence]] = {
    "mean_cosine_distance": _mean_gate(_distance_losses),
    "mean_probability_change": _mean_gate(_probability_losses),
    "tail_cosine_distance": _tail_gate(_distance_losses),
    "tail_probability_change": _tail_gate(largest_probability_changes),
    "mean_score_change": _mean_gate(_numbers_apart("score")),
    "neighbour_overlap": _mean_gate(_overlaps),
    "heaviest_overlap": _mean_gate(_heaviest),
    "token_agreement": _mean_gate(_same_token),
    "rank_correlation": _rank_gate,
    "entity_agreement": _entity_gate,
    "label_agreement": _share_gate(_same_label),
    "span_agreement": _share_gate(_same_span),
}


def bootstrap_draws(n: int, turn: int = 0) -> npt.NDArray[np.intp]:
    """Rows of indices, each a sample of n items with replacement; the same for every call, so sides are paired."""
    return np.random.default_rng(_SEED + turn).integers(n, size=(RESAMPLES, n))
