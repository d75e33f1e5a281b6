from __future__ import annotations

import numpy as np
import pytest

from trimaran.judging.bootstrap import draws, interval, percentile_interval

VALUES = np.random.default_rng(7).normal(size=200)
USUAL = {"confidence": 0.95, "resamples": 1000}


def mean_of(items: np.ndarray) -> np.ndarray:
    return VALUES[items].mean(axis=-1)


def test_the_same_items_give_the_same_draws_and_the_same_interval() -> None:
    assert np.array_equal(draws(9, resamples=5, seed=3), draws(9, resamples=5, seed=3))
    assert not np.array_equal(draws(9, resamples=5, seed=3), draws(9, resamples=5, seed=4))
    assert interval(mean_of, 200, **USUAL) == interval(mean_of, 200, **USUAL)


def test_an_interval_is_that_of_the_draws_by_the_same_seed() -> None:
    means = VALUES[draws(200, resamples=1000, seed=5)].mean(axis=1)
    assert interval(mean_of, 200, seed=5, **USUAL) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))))


def test_a_figure_of_one_resample_at_a_time_gives_the_same_interval() -> None:
    together = interval(mean_of, 200, **USUAL)
    one_by_one = interval(lambda row: float(VALUES[row].mean()), 200, one_at_a_time=True, **USUAL)
    assert one_by_one == pytest.approx(together)


def test_the_interval_of_a_mean_is_as_wide_as_theory_says() -> None:
    low, high = interval(mean_of, 200, **USUAL)
    assert low < VALUES.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * VALUES.std() / np.sqrt(200), rel=0.1)


def test_sides_looked_up_by_the_same_items_are_paired() -> None:
    shifted = VALUES + 0.5
    low, high = interval(lambda items: (shifted[items] - VALUES[items]).mean(axis=-1), 200, **USUAL)
    assert (low, high) == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_a_single_item_leaves_no_interval(one_at_a_time: bool) -> None:
    assert interval(mean_of, 1, one_at_a_time=one_at_a_time, **USUAL) == (VALUES[0], VALUES[0])


@pytest.mark.filterwarnings("error")
def test_a_value_that_is_not_finite_makes_ends_that_no_gate_accepts() -> None:
    values = VALUES.copy()
    values[3] = np.nan
    low, high = interval(lambda items: values[items].mean(axis=-1), 200, **USUAL)
    assert np.isnan(low) and np.isnan(high)


def test_bounds_of_a_percentile_are_observed_samples_and_empty_rounds_do_not_count() -> None:
    rounds = [[1.0, 2.0, 9.0], [], [2.0, 3.0, 8.0]]
    low, high = percentile_interval(rounds, 50, **USUAL)
    assert {low, high} <= {1.0, 2.0, 3.0, 8.0, 9.0} and low <= 2.0 <= high
