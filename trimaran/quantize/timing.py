"""Times calls by the processor time of this process, so that other processes cannot be seen in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.runtime.text import Array

_WARM_UPS, _FEWEST_CALLS, _SHORTEST_S = 2, 20, 0.3


def least_times_s(*calls: Callable[[], Any]) -> list[float]:
    """Return the least time of each call. They run in turns, so that the order cannot be seen in it."""
    least = [float("inf")] * len(calls)
    for _ in range(_WARM_UPS):
        for call in calls:
            call()
    turns, end_s = 0, time.process_time() + _SHORTEST_S
    while turns < _FEWEST_CALLS or time.process_time() < end_s:
        for index, call in enumerate(calls):
            begun_s = time.process_time()
            call()
            least[index] = min(least[index], time.process_time() - begun_s)
        turns += 1
    return least


def one_row(artifact: Artifact, length: int) -> dict[str, Array]:
    """Return one row that repeats a token, for calls whose answers nobody reads."""
    fills = {"attention_mask": 1, "token_type_ids": 0}
    token = artifact.tokenizer.pad_id + 1
    return {
        spec.name: np.full((1, length), fills.get(spec.name, token), np.int64) for spec in artifact.signature.inputs
    }
