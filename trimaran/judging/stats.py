"""Statistics of raw samples: observed percentiles, and ratios with a bootstrap interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from trimaran.judging import bootstrap

Number = TypeVar("Number", int, float)
Samples = Sequence[int]
Rounds = tuple[tuple[int, ...], ...]
Difference = Literal["faster", "slower", "no difference"]

CONFIDENCE = 0.95
# A smaller difference is not worth a decision. The same engine against itself must come out as "no difference".
MARGIN = 0.02
RESAMPLES = 1000


class Ratio(NamedTuple):
    """How many times faster than the reference, with the bounds of its confidence interval."""

    median: float
    low: float
    high: float


def percentile(samples: Sequence[Number], share: float) -> Number:
    """The smallest observed sample that at least `share` percent of the samples do not exceed."""
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def median(samples: Samples) -> int:
    return percentile(samples, 50)


@lru_cache(maxsize=1024)
def speedup(reference: Rounds, candidate: Rounds, *, seed: int = 0, paired: bool = True) -> Ratio:
    """Median time of the reference over that of the candidate, with a bootstrap interval over rounds and samples.

    Rounds are drawn in pairs where both sides have equally many of them and ran side by side (`paired`).
    """
    low, high = bootstrap.ratio_of_medians_interval(
        reference,
        candidate,
        paired=paired and len(reference) == len(candidate),
        confidence=CONFIDENCE,
        resamples=RESAMPLES,
        seed=seed,
    )
    observed = median(pooled(reference)) / median(pooled(candidate))
    return Ratio(observed, min(observed, low), max(observed, high))


@lru_cache(maxsize=1024)
def estimate(rounds: tuple[tuple[float, ...], ...], share: float, *, seed: int = 0) -> tuple[float, float]:
    """Bounds of a percentile of the pooled samples."""
    return bootstrap.percentile_interval(rounds, share, confidence=CONFIDENCE, resamples=RESAMPLES, seed=seed)


def ratio_of_means(upper: Rounds, lower: Rounds, *, seed: int = 0) -> Ratio:
    """For each round the mean of one side over that of the other; the median over rounds, and its bounds."""
    ratios = np.asarray([np.mean(a) / np.mean(b) for a, b in zip(upper, lower, strict=True)])
    bounds = bootstrap.interval(
        lambda rounds: np.median(ratios[rounds], axis=-1),
        len(ratios),
        confidence=CONFIDENCE,
        resamples=RESAMPLES,
        seed=seed,
    )
    return Ratio(float(np.median(ratios)), *bounds)


def combined(ratios: Sequence[Ratio]) -> Ratio:
    """Geometric mean over shapes. Bounds are the means of the bounds, so the interval is never too narrow."""
    return Ratio(*(math.exp(math.fsum(map(math.log, column)) / len(ratios)) for column in zip(*ratios, strict=True)))


def separated(ratio: Ratio, *, margin: float = MARGIN) -> Difference:
    """A difference counts only where the whole interval lies beyond the margin."""
    if ratio.low > 1 + margin:
        return "faster"
    return "slower" if ratio.high < 1 / (1 + margin) else "no difference"


def ecdf(samples: Samples, *, points: int = 60) -> tuple[tuple[int, float], ...]:
    """(sample, share of samples not above it), thinned to at most `points` observed values."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    kept = sorted({round(index * last / max(1, min(points - 1, last))) for index in range(min(points, last + 1))})
    return tuple((ordered[index], (index + 1) / len(ordered)) for index in kept)


def pooled(rounds: Sequence[Sequence[Number]]) -> list[Number]:
    """All samples of all rounds, in the order in which they were taken."""
    return [sample for samples in rounds for sample in samples]
