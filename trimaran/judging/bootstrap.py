"""Bootstrap intervals: how far a figure may be from the truth, judged by drawing its items again with replacement.

All of them are percentile intervals with a fixed seed: the same items always give the same interval. Items are texts
(`interval`), or timing rounds that hold samples (`percentile_interval`). Speed-ups have the order statistics of their
rounds instead (`stats.py`). `scipy.stats.bootstrap` does the plain case. It has no draws of
rounds and then of samples within them, so those are made here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import Column

Bounds = tuple[float, float]
Draws = npt.NDArray[np.intp]


def draws(n: int, *, resamples: int, seed: int) -> Draws:
    """One resample a row: the indices of `n` items, drawn with replacement. Equal arguments give equal rows."""
    return np.random.default_rng(seed).integers(n, size=(resamples, n))


def interval(
    figure: Callable[[Draws], Any],
    n: int,
    *,
    confidence: float,
    resamples: int,
    seed: int = 0,
    one_at_a_time: bool = False,
) -> Bounds:
    """Both ends of the interval of a figure over `n` items.

    `figure` gets indices of items and returns one value for each row of them; with `one_at_a_time` it gets a single row
    and returns a single value. Two sides are paired when `figure` looks both up by the same indices.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    items = np.arange(n)
    if n == 1:  # scipy refuses a single item; every resample of it is the same
        only = float(np.asarray(figure(items if one_at_a_time else items[None])).item())
        return only, only
    with warnings.catch_warnings():
        # An answer that is not finite makes the ends not finite, which no gate accepts. That is not worth a warning.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        ends = bootstrap(
            (items,),
            figure if one_at_a_time else lambda rows, axis: figure(rows),
            n_resamples=resamples,
            confidence_level=confidence,
            method="percentile",
            vectorized=not one_at_a_time,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return float(ends.low), float(ends.high)


def percentile_interval(
    rounds: Sequence[Sequence[float]], share: float, *, confidence: float, resamples: int, seed: int = 0
) -> Bounds:
    """A percentile of all samples; rounds are drawn first, then samples within them."""
    generator = np.random.default_rng(seed)
    kept = [np.asarray(samples, np.float64) for samples in rounds if samples]
    percentiles = [
        np.quantile(
            np.concatenate([generator.choice(kept[index], len(kept[index])) for index in row]),
            share / 100,
            method="inverted_cdf",
        )
        for row in generator.integers(len(kept), size=(resamples, len(kept)))
    ]
    return _ends(percentiles, confidence)


def _ends(values: Column | Sequence[np.floating[Any]], confidence: float) -> Bounds:
    low, high = np.quantile(values, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)
