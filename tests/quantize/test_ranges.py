"""Each method on distributions made by hand, and that the makers say which of them won."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.quantize.ranges import BINS, RANGE_METHODS, kept_shares, magnitude_counts

LEVELS = 127


def counts_of(*parts: tuple[float, float, int]) -> np.ndarray:
    """Equal counts from a share of the range to another: (from, to, count in each bin)."""
    counts = np.zeros(BINS, np.int64)
    for first, last, count in parts:
        counts[int(first * BINS) : int(last * BINS)] += count
    return counts


EVEN = counts_of((0, 1, 100))
# All within a tenth, but for a single number at the very end.
LONELY = counts_of((0, 0.1, 100_000), (1 - 1 / BINS, 1, 1))
# One number of a hundred lies beyond the half: too many to be clipped by rank.
TAIL = counts_of((0, 0.5, 9900), (0.5, 1, 100))


def test_minmax_clips_nothing() -> None:
    assert [RANGE_METHODS["minmax"](counts, LEVELS) for counts in (EVEN, LONELY, TAIL)] == [1.0, 1.0, 1.0]
    assert RANGE_METHODS["minmax"](counts_of((0, 0.25, 1)), LEVELS) == 0.25


def test_a_percentile_clips_by_rank_whatever_the_distance() -> None:
    assert RANGE_METHODS["percentile"](LONELY, LEVELS) == pytest.approx(0.1, abs=1e-3)
    assert RANGE_METHODS["percentile"](TAIL, LEVELS) > 0.99
    assert RANGE_METHODS["percentile"](EVEN, LEVELS) > 0.999


def test_mse_clips_where_finer_steps_are_worth_more_than_the_clipped() -> None:
    """By hand: a step of the whole range loses 1/12/127² each for 2e7 numbers, the lonely one 0.9² if clipped."""
    assert RANGE_METHODS["mse"](LONELY, LEVELS) < 0.2
    assert RANGE_METHODS["mse"](EVEN, LEVELS) > 0.95
    few = counts_of((0, 0.1, 10), (1 - 1 / BINS, 1, 1))
    assert RANGE_METHODS["mse"](few, LEVELS) > 0.5, "2 000 numbers gain less than the one would lose"


def test_entropy_keeps_the_shape_of_the_bulk() -> None:
    """A bell of a thirtieth of the range has a shape that few levels do not tell; even counts have none to lose."""
    places = (np.arange(BINS) + 0.5) / BINS
    bell = (1e6 * np.exp(-np.square(places / 0.03) / 2)).astype(np.int64)
    bell[-1] = 1
    assert 0.1 < RANGE_METHODS["entropy"](bell, LEVELS) < 0.3
    assert RANGE_METHODS["entropy"](EVEN, LEVELS) > 0.95


def test_methods_differ_on_a_bell_with_long_tails() -> None:
    values = np.random.default_rng(3).standard_t(3, size=200_000)
    shares = kept_shares(magnitude_counts(values, float(np.abs(values).max())), LEVELS)
    assert shares["minmax"] == 1.0
    assert all(shares[name] < 0.9 for name in ("percentile", "entropy", "mse"))
    assert len(set(shares.values())) == 4


def test_nothing_counted_keeps_all() -> None:
    assert set(kept_shares(np.zeros(BINS, np.int64), LEVELS).values()) == {1.0}
