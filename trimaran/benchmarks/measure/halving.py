"""Which contenders cannot win a race any more, so that the remaining time goes to those that can."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trimaran.core.samples import Round, Shape
from trimaran.judging.stats import median

# A loser's best round must be this many times slower than the leader's worst, at every shape. Noise alone is not.
FAR_BEHIND = 1.2


def beaten(times: Mapping[str, Mapping[Shape, Sequence[Round]]]) -> dict[str, str]:
    """Contenders that cannot win, and why: at every shape its best round is far behind the leader's worst."""
    medians = {
        name: {shape: [median(turn.samples_ns) for turn in rounds] for shape, rounds in by_shape.items()}
        for name, by_shape in times.items()
        if by_shape and all(by_shape.values())
    }
    if not medians:
        return {}
    best = min(medians, key=lambda name: math.prod(map(median, medians[name].values())))
    lost = {}
    for name, by_shape in medians.items():
        apart = {shape: min(rounds) / max(medians[best][shape]) for shape, rounds in by_shape.items()}
        if min(apart.values()) > FAR_BEHIND:
            shape, ratio = min(apart.items(), key=lambda pair: pair[1])
            rounds = len(by_shape[shape])
            lost[name] = f"after {rounds} rounds, at least {ratio:.2f} times slower than {best} (at {shape})"
    return lost
