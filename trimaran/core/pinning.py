"""Which cores the contenders run on: the same for all, and no two of them one physical core while others are free."""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def cores_for(threads: int, *, topology: Path = _TOPOLOGY, allowed: set[int] | None = None) -> tuple[int, ...]:
    """As many cores as threads, first one of each physical core; empty where the system cannot pin."""
    if allowed is None:
        if not hasattr(os, "sched_getaffinity"):
            return ()
        allowed = os.sched_getaffinity(0)
    seen: dict[str, int] = {}
    ranked = []
    for core in sorted(allowed):
        siblings = _siblings(topology, core)
        seen[siblings] = seen.get(siblings, 0) + 1
        ranked.append((seen[siblings], core))
    return tuple(sorted(core for _, core in sorted(ranked)[:threads]))


def pin(cores: tuple[int, ...]) -> None:
    """This process, and every thread that it starts from now on."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _siblings(topology: Path, core: int) -> str:
    path = topology / f"cpu{core}" / "topology" / "thread_siblings_list"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else str(core)
