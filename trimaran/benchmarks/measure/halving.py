"""Which contenders cannot win a race any more, and which still can, so that the time left goes to those."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from trimaran.core.samples import Round, Shape
from trimaran.judging.stats import median, separated, speedup_together

# A loser's best round must be this many times slower than the leader's worst, at every shape. Noise alone is not.
FAR_BEHIND = 1.2


# The rounds of every contender at every shape.
Times = Mapping[str, Mapping[Shape, Sequence[Round]]]


def beaten(times: Times) -> dict[str, str]:
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


def leaders(times: Times, fastest: str = "") -> list[str]:
    """The fastest, and all whose speed over all shapes together the rounds did not tell from its speed."""
    complete = {name: by_shape for name, by_shape in times.items() if by_shape and all(by_shape.values())}
    if not complete:
        return []

    def typical(name: str) -> float:
        rounds = complete[name].values()
        return math.prod(median([median(turn.samples_ns) for turn in turns]) for turns in rounds)

    fastest = fastest or min(complete, key=typical)
    return [name for name in complete if name == fastest or not _is_faster(complete[fastest], complete[name])]


def _is_faster(mine: Mapping[Shape, Sequence[Round]], theirs: Mapping[Shape, Sequence[Round]]) -> bool:
    shared = [shape for shape in mine if shape in theirs]
    mine_by_shape, theirs_by_shape = (
        [tuple(turn.samples_ns for turn in rounds[shape]) for shape in shared] for rounds in (mine, theirs)
    )
    return separated(speedup_together(theirs_by_shape, mine_by_shape)) == "faster"
