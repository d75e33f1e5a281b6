"""One-sided bounds: how bad the truth can be, given what the texts showed, with an error of at most `alpha`.

None of them assumes how changes are distributed. A candidate that is exactly at its limit passes in at most `alpha` of
all draws of texts.

    upper_mean        a mean, by betting against every mean that is larger
    lower_share       a share, by the exact binomial (Clopper-Pearson)
    net_loss_share    items lost less items gained on labelled data, by the exact binomial on each
    texts_needed      how many texts would prove a share, if further texts are like those seen

The tail of changes is an order statistic: see `core/tail.py`.
"""

from __future__ import annotations

import numpy as np

from trimaran.core.distances import Column

# The share of all errors that is allowed for one proof, whatever the number of candidates.
ALPHA = 0.05
# Of alpha, the part for the items lost; the rest is for the items gained.
_FOR_LOST = 0.9
_GRID = 2001
_CELLS = 4_000_000
_SEED = 22
_MOST_NEEDED = 10_000_000


def upper_mean(losses: Column, *, cap: float, alpha: float, largest_bet: float = 0.75) -> float:
    """The largest mean of min(loss, cap) that the losses do not refute.

    For each mean `m` of a grid, a gambler bets that losses are smaller than `m` on average. If `m` were true, the
    gambler's wealth would reach 1/alpha with a chance of at most alpha. Every `m` that made the gambler that rich is
    refuted. Bets depend on earlier losses only, so texts are shuffled first (seeded): files are sorted by kind.

    `largest_bet` is the most of its wealth that the gambler risks, below 1. The bound is valid for each.
    """
    n = len(losses)
    if not n:
        return cap
    x = np.minimum(losses, cap) / cap
    x = x[np.random.default_rng(_SEED).permutation(n)]
    t = np.arange(1, n + 1)
    mean = (0.5 + x.cumsum()) / (t + 1)
    variance = (0.25 + ((x - mean) ** 2).cumsum()) / (t + 1)
    bets = np.sqrt(2 * np.log(1 / alpha) / (n * np.r_[0.25, variance[:-1]]))[:, None]
    m = np.linspace(0, 1, _GRID)[1:-1]
    # A part of the grid at a time: all of it would not fit into memory for a hundred thousand texts.
    parts = np.array_split(m, max(1, n * len(m) // _CELLS))
    wealth = np.concatenate(
        [np.log1p(-np.minimum(bets, largest_bet / (1 - part)) * (x[:, None] - part)).cumsum(0).max(0) for part in parts]
    )
    unrefuted = np.flatnonzero(wealth < np.log(1 / alpha))
    # The truth may lie between two points of the grid.
    above = min(unrefuted[-1] + 1, len(m) - 1) if len(unrefuted) else 0
    return float(cap * m[above])


def lower_share(hits: int, n: int, alpha: float) -> float:
    """The smallest share that still explains so many hits; 0 where nothing was tried."""
    from scipy.stats import beta

    return float(beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0


def upper_share(hits: int, n: int, alpha: float) -> float:
    return 1.0 - lower_share(n - hits, n, alpha)


def net_loss_share(lost: int, gained: int, n: int, alpha: float) -> float:
    """At most this share of items is lost, those gained taken off."""
    return upper_share(lost, n, _FOR_LOST * alpha) - lower_share(gained, n, (1 - _FOR_LOST) * alpha)


def texts_needed(misses: int, n: int, share: float, alpha: float) -> int | None:
    """How many texts prove that at most `share` of texts miss, if they miss as often as these; None where none would.

    The least is log(alpha) / log(1 - share), for texts of which not one misses.
    """
    if share <= 0 or (misses and misses >= share * n):
        return None
    needed = int(np.ceil(np.log(alpha) / np.log1p(-share))) if share < 1 else 1
    while upper_share(int(np.ceil(misses * needed / max(1, n))), needed, alpha) > share:
        needed = int(needed * 1.05) + 1
        if needed > _MOST_NEEDED:
            return None
    return needed


def items_needed(share: float, alpha: float) -> int:
    """How many labelled items prove a net loss of at most `share`, if not one is lost."""
    return int(np.ceil(np.log(_FOR_LOST * alpha) / np.log1p(-share)))
