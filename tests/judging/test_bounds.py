from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.distances import Answers
from trimaran.core.tasks import TASKS, Gate
from trimaran.judging import gate_check as gate_checks
from trimaran.judging.bounds import items_needed, lower_share, net_loss_share, texts_needed, upper_mean
from trimaran.judging.gate_check import gate_check, kind_breaks
from trimaran.judging.proof import Proof

GENERATOR = np.random.default_rng(7)
EMBEDDING, LABELS = TASKS["embedding"], TASKS["text-classification"]
MEAN = EMBEDDING.metric("mean_cosine_distance")
TAIL = EMBEDDING.metric("tail_cosine_distance")
SHARE = LABELS.metric("label_agreement")
assert MEAN and TAIL and SHARE
LIMIT = 1.2e-3


def passes(metric: object, gate: Gate, draw: object, draws: int) -> float:
    """The share of draws of texts in which the gate is proven."""
    found = [gate_check(metric, gate, draw(), alpha=0.05).holds for _ in range(draws)]  # type: ignore[arg-type,operator]
    return float(np.mean(found))


@pytest.mark.parametrize("shape", [0.3, 1.0, 8.0])
def test_a_mean_exactly_at_its_limit_is_proven_in_at_most_5_percent_of_draws(shape: float) -> None:
    """Gamma: from a few texts that lose nearly everything to texts that lose alike."""
    gate = Gate("mean_cosine_distance", "<=", LIMIT)
    assert passes(MEAN, gate, lambda: GENERATOR.gamma(shape, LIMIT / shape, 300), 100) <= 0.05
    assert passes(MEAN, gate, lambda: GENERATOR.gamma(shape, 0.4 * LIMIT / shape, 300), 20) >= 0.9


def chance_of_proof(metric: object, gate: Gate, rows_with: object, share: float) -> float:
    """Summed over how many of 1,200 texts miss, where each does so with this chance."""
    from scipy.stats import binom

    proven = [misses for misses in range(14) if gate_check(metric, gate, rows_with(misses), alpha=0.05).holds]  # type: ignore[arg-type,operator]
    assert proven == list(range(len(proven))) and len(proven) < 14
    return float(binom.pmf(proven, 1200, share).sum())


def test_a_share_exactly_at_its_limit_is_proven_with_a_chance_of_at_most_5_percent() -> None:
    gate = Gate("label_agreement", ">=", 0.99)

    def rows_with(misses: int) -> np.ndarray:
        return np.r_[np.zeros(misses), np.ones(1200 - misses)]

    assert 0.02 < chance_of_proof(SHARE, gate, rows_with, 0.01) <= 0.05
    assert chance_of_proof(SHARE, gate, rows_with, 0.002) >= 0.9


def test_a_tail_exactly_at_its_limit_is_proven_with_a_chance_of_at_most_5_percent() -> None:
    gate = Gate("tail_cosine_distance", "<=", 0.01)

    def rows_with(misses: int) -> np.ndarray:
        return np.r_[np.full(misses, 0.02), np.full(1200 - misses, 0.001)]

    assert 0.02 < chance_of_proof(TAIL, gate, rows_with, 0.01) <= 0.05


def test_a_net_loss_exactly_at_its_limit_is_proven_in_at_most_5_percent_of_draws() -> None:
    """0.3 % of the items are lost and 0.2 % gained, so that 0.1 % are lost in all."""
    n = 20_000
    lost, gained = GENERATOR.binomial(n, 0.003, 500), GENERATOR.binomial(n, 0.002, 500)
    bounds = [net_loss_share(int(a), int(b), n, 0.05) for a, b in zip(lost, gained, strict=True)]
    assert np.mean(np.asarray(bounds) <= 0.001) <= 0.05


def test_the_mean_of_many_texts_has_a_near_bound_and_of_none_has_none() -> None:
    losses = GENERATOR.lognormal(np.log(5e-4), 0.6, 1200)
    assert losses.mean() < upper_mean(losses, cap=20 * LIMIT, alpha=0.0125) < 1.3 * losses.mean()
    assert upper_mean(np.empty(0), cap=0.5, alpha=0.05) == 0.5


def test_shares_are_exact() -> None:
    assert lower_share(400, 400, 0.05) == pytest.approx(0.05 ** (1 / 400))
    assert lower_share(0, 10, 0.05) == 0.0


def test_the_number_of_texts_that_are_needed_is_said() -> None:
    assert texts_needed(0, 16, 0.01, 0.05) == 299
    assert texts_needed(0, 0, 0.001, 0.05) == 2995
    assert texts_needed(5, 400, 0.01, 0.05) is None, "texts like these would never prove it"
    needed = texts_needed(1, 460, 0.01, 0.0125)
    assert needed is not None and lower_share(needed - -(-needed // 460), needed, 0.0125) >= 0.99
    assert items_needed(0.001, 0.05) == 3100


def test_too_few_texts_prove_nothing_however_clean_they_are() -> None:
    agreed = gate_check(SHARE, Gate("label_agreement", ">=", 0.99), np.ones(16), alpha=0.05)
    assert (agreed.observed, agreed.verdict, agreed.needs_words) == (1.0, "not proven", "needs 299 texts, has 16")
    none = gate_check(SHARE, Gate("label_agreement", ">=", 0.99), np.empty(0), alpha=0.05)
    assert (none.verdict, none.needs_words) == ("not proven", "needs 299 texts, has 0")
    tail = gate_check(TAIL, Gate("tail_cosine_distance", "<=", 0.01), np.zeros(298), alpha=0.05)
    assert (tail.verdict, tail.needs) == ("not proven", 299)
    mean = gate_check(MEAN, Gate("mean_cosine_distance", "<=", LIMIT), np.full(16, 1e-3), alpha=0.05)
    assert mean.verdict == "not proven" and mean.needs is not None and mean.needs > 16


def test_a_value_beyond_its_limit_is_broken_and_needs_no_more_texts() -> None:
    mean = gate_check(MEAN, Gate("mean_cosine_distance", "<=", LIMIT), np.full(600, 2e-3), alpha=0.05)
    assert (mean.verdict, mean.needs) == ("broken", None)
    flipped = np.r_[np.zeros(20), np.ones(580)]
    assert gate_check(SHARE, Gate("label_agreement", ">=", 0.99), flipped, alpha=0.05).verdict == "broken"


def test_without_alpha_the_value_decides() -> None:
    assert gate_check(SHARE, Gate("label_agreement", ">=", 0.99), np.ones(8), alpha=None).verdict == "proven"


def test_the_error_is_shared_among_candidates() -> None:
    clean = np.ones(400)
    alone, shared = (gate_check(SHARE, Gate("label_agreement", ">=", 0.99), clean, alpha=0.05 / k) for k in (1, 4))
    assert (alone.verdict, shared.verdict) == ("proven", "not proven")


def test_a_kind_breaks_a_mean_by_its_value_and_a_share_by_what_luck_does_not_explain() -> None:
    gate = Gate("label_agreement", ">=", 0.99)
    flips = [np.r_[np.zeros(count), np.ones(60 - count)] for count in (2, 3)]
    assert [kind_breaks(SHARE, gate, rows, 0.05) for rows in flips] == [False, True]
    limit = Gate("mean_cosine_distance", "<=", LIMIT)
    assert [kind_breaks(MEAN, limit, np.full(60, value), 0.05) for value in (1.4e-3, 1.6e-3)] == [False, True]


def test_pairs_that_do_not_count_neither_break_a_correlation_nor_take_its_bound() -> None:
    """NaN marks a text beside itself, which has no neighbour to be ranked with."""
    correlation = EMBEDDING.metric("rank_correlation")
    assert correlation
    pairs = np.repeat(GENERATOR.normal(size=(60, 5, 1)), 2, axis=2)
    pairs[:, 0] = np.nan
    gate = Gate("rank_correlation", ">=", 0.9)
    check = gate_check(correlation, gate, pairs, alpha=0.05)
    assert check.holds and check.bound is not None
    assert not kind_breaks(correlation, gate, pairs, 0.05)
    pairs[:, 1:, 1] *= -1
    assert kind_breaks(correlation, gate, pairs, 0.05)


def test_a_correlation_exactly_at_its_limit_is_proven_in_few_draws_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partners of a text are texts of the same draw, and differ from draw to draw as it does."""
    monkeypatch.setattr(gate_checks, "_POOLED_RESAMPLES", 60)
    correlation = EMBEDDING.metric("rank_correlation")
    assert correlation
    generator = np.random.default_rng(8)
    topics = generator.normal(size=(4, 32))
    draws = [moved_vectors(generator, topics) for _ in range(60)]
    true = float(np.mean([correlation.value(*sides) for sides in draws]))
    gate = Gate("rank_correlation", ">=", true)
    found = [gate_check(correlation, gate, correlation.rows(*sides), alpha=0.05).holds for sides in draws]
    assert np.mean(found) <= 0.1


def moved_vectors(generator: np.random.Generator, topics: np.ndarray) -> tuple[Answers, Answers]:
    """80 texts of a few topics, some of which move further than others."""
    vectors = topics[generator.integers(len(topics), size=80)] + 0.8 * generator.normal(size=(80, 32))
    far = 0.03 * generator.gamma(4.0, size=(80, 1))
    return {"embedding": vectors}, {"embedding": vectors + far * generator.normal(size=(80, 32))}


@pytest.mark.parametrize(("texts", "words"), [(299, "needs 300 texts with an entity, has 299"), (300, "")])
def test_fewer_than_300_texts_with_an_entity_prove_no_agreement_on_entities(texts: int, words: str) -> None:
    metric = TASKS["token-classification"].metric("entity_agreement")
    assert metric is not None
    check = gate_check(metric, Gate("entity_agreement", ">=", 0.97), np.ones(texts), alpha=0.05)
    assert (check.verdict, check.needs_words) == ("not proven" if words else "proven", words)


@pytest.mark.parametrize("task", ["embedding", "sparse-embedding", "rerank"])
def test_a_share_of_neighbours_exactly_at_its_limit_is_not_proven_where_few_texts_lose_everything(task: str) -> None:
    """No gate on a tail speaks of it, so what one text loses counts whole."""
    row = TASKS[task]
    gate = next(gate for gate in row.gates["strict"] if gate.comparison == ">=")
    metric = row.metric(gate.metric)
    assert metric and metric.kind == "mean"
    lost, generator = 1 - gate.limit, np.random.default_rng(1)
    assert passes(metric, gate, lambda: 1.0 - (generator.random(600) < lost), 100) <= 0.05
    # A tenth of the limit, lost in parts: ten of a hundred texts have one other neighbour.
    assert passes(metric, gate, lambda: 1.0 - 0.1 * (generator.random(600) < lost), 20) >= 0.9


def test_every_mean_that_is_gated_has_a_gate_on_its_tail_or_counts_whole() -> None:
    for row in TASKS.values():
        gated = {gate.metric for level in row.gates.values() for gate in level}
        means = {metric.name: metric for metric in row.metrics if metric.kind == "mean" and metric.name in gated}
        for name, metric in means.items():
            assert metric.most is not None or name.replace("mean_", "tail_") in gated, (row.name, name)


@pytest.mark.parametrize("lossy", [False, True])
def test_int8_never_passes_for_float_noise_however_large_one_number_is(lossy: bool) -> None:
    """Logits move by 0.2, and one logit of one text is 10,000."""
    logits = GENERATOR.normal(size=(400, 3))
    logits[0, 0] = 1e4
    moved = logits + 0.2 * np.sign(GENERATOR.normal(size=logits.shape))
    proof = Proof(LABELS, LABELS.gates["strict"], {"logits": logits}, {"logits": moved}, lossy=lossy)
    assert (proof.alpha is None) == (not lossy)


@pytest.mark.parametrize(("task", "name"), [("rerank", "score"), ("text-classification", "values")])
def test_scores_of_any_size_are_compared_by_their_own_size(task: str, name: str) -> None:
    row = TASKS[task]
    scores = np.linspace(-0.05, 0.05, 400)[:, None]
    moved = scores + 0.1 * scores.max()
    small = row.fidelity({name: scores}, {name: moved})
    tail = next(gate for gate in row.gates["strict"] if gate.metric.startswith("tail_"))
    assert small[tail.metric] == pytest.approx(0.1) and small[tail.metric] > tail.limit
    large = row.fidelity({name: 100 * scores}, {name: 100 * moved})
    assert large[tail.metric] == pytest.approx(0.1)
