"""The time of a candidate that is made but not judged, over that of a candidate that is proven.

To judge a large model takes minutes, to time it seconds: one that is clearly slower need not be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trimaran.core.artifact import load_artifact
from trimaran.core.backends import open_session
from trimaran.quantize.timing import least_times_s, one_row


def made_time(parent: str, rival: str, sequences: Sequence[int], weight_levels: int) -> list[float]:
    """Return, for single rows of each length, the least time of `parent` over the rival's, on one thread."""
    made, proven = load_artifact(Path(parent)), load_artifact(Path(rival))
    ratios = []
    with open_session(made, threads=1) as candidate, open_session(proven, threads=1) as winner:
        for inputs in (one_row(made, length) for length in sequences):
            made_s, proven_s = least_times_s(partial(candidate.infer, inputs), partial(winner.infer, inputs))
            ratios.append(made_s / max(proven_s, 1e-9))
    return ratios
