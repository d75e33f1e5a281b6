"""How much of the largest magnitude a range keeps before it clips, by each of the usual methods.

None of them is the best for every layer: the makers try all, by what the layer's own result loses, and say which won.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Method = Literal["minmax", "percentile", "entropy", "mse"]
BINS = 2048
PERCENTILE = 0.9999
# No method clips further than to this share of the bins.
_LEAST = 16
_STRIDE = 8


def magnitude_counts(values: Array, largest: float) -> Array:
    """How often |x| falls into each of `BINS` equal bins up to `largest`; what is beyond counts as largest."""
    return np.histogram(np.minimum(np.abs(values), largest), bins=BINS, range=(0.0, largest))[0]


def kept_shares(counts: Array, levels: int) -> dict[Method, float]:
    """By method, for a histogram of magnitudes; all of the range where nothing was counted."""
    if not counts.any():
        return dict.fromkeys(RANGE_METHODS, 1.0)
    return {name: method(counts, levels) for name, method in RANGE_METHODS.items()}


def _minmax(counts: Array, levels: int) -> float:
    """Nothing is clipped."""
    return (int(np.flatnonzero(counts)[-1]) + 1) / len(counts)


def _percentile(counts: Array, levels: int) -> float:
    """One number of ten thousand is clipped."""
    total = np.cumsum(counts)
    return (int(np.searchsorted(total, PERCENTILE * total[-1])) + 1) / len(counts)


def _mse(counts: Array, levels: int) -> float:
    """Rounding and clipping together have the least squared error."""
    centres = (np.arange(len(counts)) + 0.5) / len(counts)
    shares = _ends(counts, len(counts) // _LEAST) / len(counts)
    lost = [
        counts[centres <= share].sum() * (share / levels) ** 2 / 12
        + (counts * np.square(np.maximum(centres - share, 0.0))).sum()
        for share in shares
    ]
    return float(shares[int(np.argmin(lost))])


def _entropy(counts: Array, levels: int) -> float:
    """The distribution after rounding tells least apart from the one before (Kullback-Leibler)."""
    ends = _ends(counts, max(levels, len(counts) // _LEAST))
    lost = [_divergence(counts, int(end), levels) for end in ends]
    return float(ends[int(np.argmin(lost))] / len(counts))


def _ends(counts: Array, first: int) -> Array:
    return np.arange(first, len(counts) + 1, _STRIDE)


def _divergence(counts: Array, end: int, levels: int) -> float:
    """Of the first `end` bins, the clipped ones piled upon the last, from the same bins evened out to `levels`."""
    kept = counts[:end].astype(np.float64)
    wanted = kept.copy()
    wanted[-1] += counts[end:].sum()
    places = np.arange(end) * levels // end
    filled = kept > 0
    sums = np.bincount(places, kept, minlength=levels)
    bins = np.bincount(places, filled, minlength=levels)
    evened = np.where(filled, (sums / np.maximum(bins, 1))[places], 0.0)
    if not evened.any():
        return float("inf")
    wanted, evened = wanted / wanted.sum(), evened / evened.sum()
    there = wanted > 0
    # A bin that holds only what was clipped has nothing beside it: as good as lost.
    return float((wanted[there] * np.log(wanted[there] / np.maximum(evened[there], 1e-9))).sum())


RANGE_METHODS: Mapping[Method, Callable[[Array, int], float]] = {
    "minmax": _minmax,
    "percentile": _percentile,
    "entropy": _entropy,
    "mse": _mse,
}
