"""Where to clip numbers before they are rounded to 8 bits, by each of the usual methods.

Eight bits have few levels. A range up to the largest number seen clips nothing, but rounds everything coarsely. A
narrower range rounds finely, and clips the few numbers beyond it. Each method returns the share of the largest
magnitude that its range keeps: if the largest is 10 and the share 0.4, numbers beyond 4 become 4, and the others round
2.5 times finer.

No method is the best for every layer. The makers try all of them by what the layer's own result loses, and record which
one won.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from trimaran.runtime.text import Array

RangeMethod = Literal["minmax", "percentile", "entropy", "mse"]
BINS = 2048
PERCENTILE = 0.9999
# No method clips below 1/16 of the range; candidates are this many bins apart.
_NARROWEST = 16
_STRIDE = 8


def whole_numbers(values: Array, step: Any, *, levels: int) -> Array:
    """Round to multiples of `step`, from -levels to levels."""
    return np.asarray(np.clip(np.rint(values / step), -levels, levels))


def magnitude_counts(values: Array, largest: float) -> Array:
    """Count how often |x| falls into each of `BINS` equal bins up to `largest`; numbers beyond count as largest."""
    return np.histogram(np.minimum(np.abs(values), largest), bins=BINS, range=(0.0, largest))[0]


def kept_shares(counts: Array, levels: int) -> dict[RangeMethod, float]:
    """Return each method's share for a histogram of magnitudes; 1 where nothing was counted."""
    if not counts.any():
        return dict.fromkeys(RANGE_METHODS, 1.0)
    return {name: method(counts, levels) for name, method in RANGE_METHODS.items()}


def symmetric_step(rows: Array, peak: float, *, levels: int) -> float:
    """Return the step around zero, of those that the methods give, that rounds these numbers with the least error."""
    shares = kept_shares(magnitude_counts(rows, peak), levels)

    def lost(step: float) -> float:
        return float(np.square(whole_numbers(rows, step, levels=levels) * step - rows).mean())

    return min((share * peak / levels for share in shares.values()), key=lost)


def _minmax(counts: Array, levels: int) -> float:
    """Nothing is clipped."""
    return (int(np.flatnonzero(counts)[-1]) + 1) / len(counts)


def _percentile(counts: Array, levels: int) -> float:
    """One number in ten thousand is clipped."""
    total = np.cumsum(counts)
    return (int(np.searchsorted(total, PERCENTILE * total[-1])) + 1) / len(counts)


def _mse(counts: Array, levels: int) -> float:
    """Rounding and clipping together have the least squared error."""
    centres = (np.arange(len(counts)) + 0.5) / len(counts)
    shares = _ends(counts, len(counts) // _NARROWEST) / len(counts)
    lost = [
        counts[centres <= share].sum() * (share / levels) ** 2 / 12
        + (counts * np.square(np.maximum(centres - share, 0.0))).sum()
        for share in shares
    ]
    return float(shares[int(np.argmin(lost))])


def _entropy(counts: Array, levels: int) -> float:
    """The distribution after rounding differs least from the one before (Kullback-Leibler divergence)."""
    ends = _ends(counts, max(levels, len(counts) // _NARROWEST))
    lost = [_divergence(counts, int(end), levels) for end in ends]
    return float(ends[int(np.argmin(lost))] / len(counts))


def _ends(counts: Array, first: int) -> Array:
    return np.arange(first, len(counts) + 1, _STRIDE)


def _divergence(counts: Array, end: int, levels: int) -> float:
    """Compare the first `end` bins, clipped numbers added to the last, with the same bins averaged over each level."""
    kept = counts[:end].astype(np.float64)
    clipped = kept.copy()
    clipped[-1] += counts[end:].sum()
    level_of_bin = np.arange(end) * levels // end
    filled = kept > 0
    sums = np.bincount(level_of_bin, kept, minlength=levels)
    bins = np.bincount(level_of_bin, filled, minlength=levels)
    averaged = np.where(filled, (sums / np.maximum(bins, 1))[level_of_bin], 0.0)
    if not averaged.any():
        return float("inf")
    clipped, averaged = clipped / clipped.sum(), averaged / averaged.sum()
    there = clipped > 0
    # A bin that holds only clipped numbers has no counterpart: it counts as almost entirely lost.
    return float((clipped[there] * np.log(clipped[there] / np.maximum(averaged[there], 1e-9))).sum())


RANGE_METHODS: Mapping[RangeMethod, Callable[[Array, int], float]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}
