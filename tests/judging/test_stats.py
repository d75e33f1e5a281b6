from __future__ import annotations

import numpy as np
import pytest

from trimaran.judging.stats import (
    FEWEST_ROUNDS,
    Ratio,
    combined,
    coverage,
    ecdf,
    fewest_samples,
    interval_rank,
    median,
    over_rounds,
    percentile,
    separated,
    speedup,
    upper_percentile,
)


def rounds(median_ns: float, seed: int, *, count: int = 5, size: int = 10) -> tuple[tuple[int, ...], ...]:
    generator = np.random.default_rng(seed)
    return tuple(
        tuple(int(median_ns * drift * noise) for noise in generator.lognormal(0, 0.03, size))
        for drift in generator.normal(1, 0.01, count)
    )


def test_a_percentile_is_a_sample_that_was_observed() -> None:
    samples = [5, 1, 9, 7]
    assert [percentile(samples, share) for share in (0, 25, 50, 51, 99, 100)] == [1, 1, 5, 7, 9, 9]
    assert median([3]) == 3


def test_the_bound_of_a_percentile_holds_as_often_as_it_says_and_wants_enough_samples() -> None:
    assert [fewest_samples(share) for share in (50, 90, 99, 99.9)] == [5, 29, 299, 2995]
    assert upper_percentile(range(298), 99) is None and upper_percentile(range(299), 99) == 298
    draws = np.random.default_rng(0).random((1000, 600))
    assert sum(upper_percentile(row.tolist(), 99) >= 0.99 for row in draws) >= 940


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        percentile([], 50)


def test_the_same_engine_against_itself_shows_no_difference() -> None:
    found = [separated(speedup(rounds(1e6, seed), rounds(1e6, seed + 1000))) for seed in range(200)]
    assert found.count("no difference") >= 196


def test_twice_as_slow_comes_out_as_slower_and_twice_as_fast_as_faster() -> None:
    slower = speedup(rounds(1e6, 1), rounds(2e6, 2))
    assert separated(slower) == "slower"
    assert slower.low <= slower.median <= slower.high
    assert slower.median == pytest.approx(0.5, rel=0.05)
    assert separated(speedup(rounds(2e6, 1), rounds(1e6, 2))) == "faster"


@pytest.mark.parametrize("count", [6, 7, 8, 9, 10])
def test_the_interval_contains_the_true_ratio_as_often_as_it_says(count: int) -> None:
    """Of 1,000 races with turns that jump by half, as on machines with two speeds."""
    generator = np.random.default_rng(count)
    noise = generator.normal(0, 0.05, (1000, count)) + np.log(1.5) * generator.choice([-1, 0, 1], (1000, count))
    found = [over_rounds(3 * np.exp(row)) for row in noise]
    assert sum(ratio.low <= 3.0 <= ratio.high for ratio in found) >= 940


def test_the_ranks_are_those_of_the_binomial_distribution() -> None:
    assert [interval_rank(count) for count in (1, 2, 5, 6, 8, 9, 11, 12)] == [1, 1, 1, 1, 1, 2, 2, 3]
    assert [round(coverage(*pair), 3) for pair in ((3, 1), (5, 1), (6, 1), (9, 2))] == [0.75, 0.938, 0.969, 0.961]
    assert FEWEST_ROUNDS == 6


def test_a_fast_turn_weighs_no_more_than_a_slow_one() -> None:
    """Twice as many samples fit into a turn at double speed; pooled medians would say 2.5 here."""
    reference = ((1000,) * 10, (1000,) * 10, (500,) * 20)
    candidate = ((500,) * 20, (500,) * 20, (200,) * 50)
    assert speedup(reference, candidate)[:3] == (2.0, 2.0, 2.5)


def test_drift_that_hits_both_sides_of_a_round_widens_nothing() -> None:
    drift = (1.0, 1.5, 0.8, 1.2, 1.0)
    a = tuple(tuple(int(1000 * d) for _ in range(8)) for d in drift)
    b = tuple(tuple(int(500 * d) for _ in range(8)) for d in drift)
    ratio = speedup(a, b)
    assert (ratio.low, ratio.high) == (2.0, 2.0)


def test_sides_with_unlike_rounds_are_still_compared() -> None:
    assert separated(speedup(rounds(2e6, 1, count=5), rounds(1e6, 2, count=2, size=3))) == "faster"


def test_the_same_samples_give_the_same_interval() -> None:
    a, b = rounds(1e6, 3), rounds(2e6, 4)
    first = speedup(a, b)
    speedup.cache_clear()
    assert speedup(a, b) == first


def test_a_difference_inside_the_margin_does_not_count() -> None:
    assert separated(Ratio(1.015, 1.01, 1.019)) == "no difference"
    assert separated(Ratio(1.1, 0.99, 1.2)) == "no difference"


def test_shapes_are_combined_by_their_geometric_mean() -> None:
    assert combined([Ratio(4.0, 2.0, 8.0), Ratio(1.0, 0.5, 2.0)]) == pytest.approx((2.0, 1.0, 4.0, 0))


def test_a_distribution_is_thinned_to_observed_values_and_ends_at_one() -> None:
    points = ecdf(list(range(1000)), points=20)
    assert len(points) <= 20
    assert points[0] == (0, 0.001)
    assert points[-1] == (999, 1.0)
    assert ecdf([7]) == ((7, 1.0),)
