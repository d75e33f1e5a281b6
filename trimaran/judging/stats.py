"""Statistics of raw samples: observed percentiles, and ratios within rounds with the order statistics around them.

A speed-up is the median, over rounds, of the reference's median time over the candidate's in the same round. A slow
moment of the machine hits both sides of a round, so it leaves the ratio alone. Its interval runs from one ordered
ratio to another: with 6 rounds from the smallest to the largest (96.9 %), with 9 from the 2nd to the 8th (96.1 %).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from trimaran.judging import bootstrap

Number = TypeVar("Number", int, float)
TimeSamples = Sequence[int]
Rounds = tuple[tuple[int, ...], ...]
SpeedDifference = Literal["faster", "slower", "no difference"]

CONFIDENCE = 0.95
# A smaller difference is not worth a decision. The same engine against itself must come out as "no difference".
MARGIN = 0.02
RESAMPLES = 1000


class Ratio(NamedTuple):
    """How many times faster than the reference, with the bounds of its confidence interval."""

    median: float
    low: float
    high: float
    # Rounds behind it. Below FEWEST_ROUNDS the bounds are the range of the rounds and cover less than CONFIDENCE.
    rounds: int = 0


def percentile(samples: Sequence[Number], share: float) -> Number:
    """The smallest observed sample that at least `share` percent of the samples do not exceed."""
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def fewest_samples(share: float) -> int:
    """From how many samples on the largest of them bounds this percentile with CONFIDENCE: 299 for p99."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(share / 100)) if 0 < share < 100 else 1


def upper_percentile(samples: Sequence[Number], share: float) -> Number | None:
    """The smallest observed sample that bounds the percentile from above with CONFIDENCE; None: too few samples."""
    from scipy.stats import binom

    rank = int(binom.ppf(CONFIDENCE, len(samples), share / 100)) + 1
    return sorted(samples)[rank - 1] if rank <= len(samples) else None


def too_few_samples(share: float, samples: int) -> str:
    return f"not proven: p{share:g} needs {fewest_samples(share)} samples, has {samples}"


def median(samples: TimeSamples) -> int:
    return percentile(samples, 50)


def coverage(rounds: int, rank: int = 1) -> float:
    """How often the interval from the rank-th smallest to the rank-th largest of the rounds holds the true median."""
    return 1 - sum(math.comb(rounds, below) for below in range(rank)) / float(2 ** (rounds - 1))


@lru_cache(maxsize=64)
def interval_rank(rounds: int) -> int:
    """The largest rank whose interval still covers CONFIDENCE; 1, the whole range, where no rank does."""
    return max((rank for rank in range(1, rounds // 2 + 1) if coverage(rounds, rank) >= CONFIDENCE), default=1)


# With fewer rounds, not even their whole range covers CONFIDENCE.
FEWEST_ROUNDS = next(rounds for rounds in range(1, 100) if coverage(rounds) >= CONFIDENCE)


def over_rounds(values: Sequence[float]) -> Ratio:
    """The median of one positive value a round, with the interval that its order statistics give."""
    ordered = sorted(values)
    middle = math.sqrt(ordered[(len(ordered) - 1) // 2] * ordered[len(ordered) // 2])
    rank = interval_rank(len(ordered))
    return Ratio(middle, ordered[rank - 1], ordered[-rank], len(ordered))


@lru_cache(maxsize=1024)
def speedup(reference: Rounds, candidate: Rounds) -> Ratio:
    """The median, over rounds, of the reference's median time over the candidate's in the same round.

    A side with fewer rounds took part in the first ones only.
    """
    return over_rounds([median(base) / median(mine) for base, mine in zip(reference, candidate, strict=False)])


def speedup_together(reference: Sequence[Rounds], candidate: Sequence[Rounds]) -> Ratio:
    """A speed-up over several shapes: a round's value is the geometric mean of its ratios at all of them."""
    by_shape = [
        [median(base) / median(mine) for base, mine in zip(bases, mines, strict=False)]
        for bases, mines in zip(reference, candidate, strict=True)
    ]
    return over_rounds([math.prod(ratios) ** (1 / len(ratios)) for ratios in zip(*by_shape, strict=False)])


@lru_cache(maxsize=1024)
def estimate(rounds: tuple[tuple[float, ...], ...], share: float, *, seed: int = 0) -> tuple[float, float]:
    """Bounds of a percentile of the pooled samples."""
    return bootstrap.percentile_interval(rounds, share, confidence=CONFIDENCE, resamples=RESAMPLES, seed=seed)


def ratio_of_means(upper: Rounds, lower: Rounds) -> Ratio:
    """For each round the mean of one side over that of the other; the median over rounds, and its bounds."""
    return over_rounds([float(np.mean(a) / np.mean(b)) for a, b in zip(upper, lower, strict=True)])


def combined(ratios: Sequence[Ratio]) -> Ratio:
    """Geometric mean over shapes. Bounds are the means of the bounds, so the interval is never too narrow."""

    def mean(values: Iterable[float]) -> float:
        return math.exp(math.fsum(map(math.log, values)) / len(ratios))

    return Ratio(
        mean(ratio.median for ratio in ratios),
        mean(ratio.low for ratio in ratios),
        mean(ratio.high for ratio in ratios),
        min(ratio.rounds for ratio in ratios),
    )


def separated(ratio: Ratio, *, margin: float = MARGIN) -> SpeedDifference:
    """A difference counts only where the whole interval lies beyond the margin."""
    if ratio.low > 1 + margin:
        return "faster"
    return "slower" if ratio.high < 1 / (1 + margin) else "no difference"


def ecdf(samples: TimeSamples, *, points: int = 60) -> tuple[tuple[int, float], ...]:
    """(sample, share of samples not above it), thinned to at most `points` observed values."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    kept = sorted({round(index * last / max(1, min(points - 1, last))) for index in range(min(points, last + 1))})
    return tuple((ordered[index], (index + 1) / len(ordered)) for index in kept)


def pooled(rounds: Sequence[Sequence[Number]]) -> list[Number]:
    """All samples of all rounds, in the order in which they were taken."""
    return [sample for samples in rounds for sample in samples]
