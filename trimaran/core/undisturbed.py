"""Whether this process was left alone for a while: how long its threads waited for a CPU, and how fast the CPU was.

Linux counts for each thread how long it was ready to run and had no CPU (`/proc/self/task/*/schedstat`, second field).
The yardstick is a small computation that never changes. Where it takes longer than on a quiet machine, the CPU itself
was slower: shared with a neighbour of the host, or clocked down.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

_TASKS = Path("/proc/self/task")
_VALUES = np.random.default_rng(0).random(4096)
_SORTS, _TURNS = 10, 3


def waited_ns(tasks: Path = _TASKS) -> int | None:
    """Nanoseconds that all threads of this process waited for a CPU so far; None where the system does not tell."""
    waits = []
    for path in tasks.glob("*/schedstat"):
        try:
            waits.append(int(path.read_text(encoding="utf-8").split()[1]))
        except (OSError, IndexError, ValueError):  # a thread that ended meanwhile
            continue
    return sum(waits) if waits else None


def yardstick_ns() -> int:
    """The fastest of a few turns of the fixed computation: about a quarter of a millisecond each."""
    times = []
    for _ in range(_TURNS):
        begun_ns = time.perf_counter_ns()
        for _ in range(_SORTS):
            np.sort(_VALUES)
        times.append(time.perf_counter_ns() - begun_ns)
    return min(times)


class Disturbance:
    """Starts when it is created; `found` ends it."""

    def __init__(self) -> None:
        self._yardstick_ns = yardstick_ns()
        self._waited_ns, self._begun_ns = waited_ns(), time.perf_counter_ns()

    def found(self) -> dict[str, float | int | None]:
        """The fields of a `Round` that say how far it was left alone."""
        waited, spent_ns = waited_ns(), time.perf_counter_ns() - self._begun_ns
        known = waited is not None and self._waited_ns is not None
        return {
            # A thread that ended takes its count with it.
            "delayed": max(0, waited - self._waited_ns) / spent_ns if known else None,  # type: ignore[operator]
            "yardstick_ns": max(self._yardstick_ns, yardstick_ns()),
        }
