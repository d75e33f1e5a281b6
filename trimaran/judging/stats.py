"""Statistics of raw samples: observed percentiles, and ratios with an interval that knows about rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", int, float)
Samples = Sequence[int]
Rounds = tuple[tuple[int, ...], ...]
Difference = Literal["faster", "slower", "no difference"]

CONFIDENCE = 0.95
# A difference below this is not worth a decision, and the same engine against itself must come out equal.
MARGIN = 0.02
_RESAMPLES = 1000


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
    """Median time of the reference over that of the candidate, with a hierarchical bootstrap interval.

    Rounds are drawn first, then samples within them. Where both sides have the same rounds, the same rounds are
    drawn for both: they ran side by side, so a machine that was slow for a while was slow for both. Runs that were
    not side by side are not `paired`.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(reference), size=(_RESAMPLES, len(reference)))
    together = paired and len(reference) == len(candidate)
    other = drawn if together else generator.integers(len(candidate), size=(_RESAMPLES, len(candidate)))
    ratios = _medians(reference, drawn, generator) / _medians(candidate, other, generator)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, (tail, 1 - tail))
    observed = median(_pooled(reference)) / median(_pooled(candidate))
    return Ratio(observed, min(observed, float(low)), max(observed, float(high)))


@lru_cache(maxsize=1024)
def estimate(rounds: tuple[tuple[float, ...], ...], share: float, *, seed: int = 0) -> tuple[float, float]:
    """Bounds of a percentile of the pooled samples: rounds are drawn first, then samples within them."""
    generator = np.random.default_rng(seed)
    kept = [np.asarray(samples, np.float64) for samples in rounds if samples]
    drawn = generator.integers(len(kept), size=(_RESAMPLES, len(kept)))
    found = [
        np.quantile(
            np.concatenate([generator.choice(kept[index], len(kept[index])) for index in row]),
            share / 100,
            method="inverted_cdf",
        )
        for row in drawn
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(found, (tail, 1 - tail))
    return float(low), float(high)


def ratio_of_means(upper: Rounds, lower: Rounds, *, seed: int = 0) -> Ratio:
    """Mean of each round of one side over that of the other: the median over rounds, and its bootstrap bounds."""
    ratios = np.asarray([np.mean(a) / np.mean(b) for a, b in zip(upper, lower, strict=True)])
    drawn = np.random.default_rng(seed).integers(len(ratios), size=(_RESAMPLES, len(ratios)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (tail, 1 - tail))
    return Ratio(float(np.median(ratios)), float(low), float(high))


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
    wanted = sorted({round(index * last / max(1, min(points - 1, last))) for index in range(min(points, last + 1))})
    return tuple((ordered[index], (index + 1) / len(ordered)) for index in wanted)


def _pooled(rounds: Rounds) -> list[int]:
    return [sample for samples in rounds for sample in samples]


def _medians(rounds: Rounds, drawn: npt.NDArray[np.int64], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Median of each resample. Every round gives as many samples as the smallest one has, so none outweighs."""
    sizes = np.array([len(samples) for samples in rounds])
    table = np.zeros((len(rounds), sizes.max()))
    for index, samples in enumerate(rounds):
        table[index, : len(samples)] = samples
    shares = generator.random((*drawn.shape, sizes.min()))
    chosen = (shares * sizes[drawn][..., None]).astype(np.int64)
    return np.asarray(np.median(table[drawn[..., None], chosen].reshape(len(drawn), -1), axis=1))
