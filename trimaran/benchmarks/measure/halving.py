"""Who cannot win a race any more, so that what is left of the time goes to those who can."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trimaran.core.samples import Round, Shape
from trimaran.judging.stats import median

# How far the best round of a loser must lie behind the worst of the leader: noise does not do that at every shape.
FAR_BEHIND = 1.2


def beaten(times: Mapping[str, Mapping[Shape, Sequence[Round]]]) -> dict[str, str]:
    """Who cannot win any more, and why: at every shape its best round is far slower than the leader's worst."""
    medians = {
        name: {shape: [median(turn.samples_ns) for turn in rounds] for shape, rounds in found.items()}
        for name, found in times.items()
        if found and all(found.values())
    }
    if not medians:
        return {}
    best = min(medians, key=lambda name: math.prod(median(found) for found in medians[name].values()))
    lost = {}
    for name, found in medians.items():
        apart = {shape: min(rounds) / max(medians[best][shape]) for shape, rounds in found.items()}
        if min(apart.values()) > FAR_BEHIND:
            shape, ratio = min(apart.items(), key=lambda pair: pair[1])
            rounds = len(found[shape])
            lost[name] = f"after {rounds} rounds, at least {ratio:.2f} times slower than {best} (at {shape})"
    return lost
