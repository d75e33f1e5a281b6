"""How far other processes disturbed what we measured: how long they delayed us, and how much of the cores they used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

# A turn is void if its threads waited for a CPU for more than this share of it.
DELAY_LIMIT = 0.25
# Above this share of the cores, a report says so.
NOTICED = 0.05
_IDLE_FIELDS = (3, 4)  # idle and iowait, of the fields of a cpu line


def own_seconds() -> float:
    """CPU time of this process and all its descendants, those that have ended included."""
    mine = os.times()
    total = mine.user + mine.system + mine.children_user + mine.children_system
    for child in psutil.Process().children(recursive=True):
        try:
            spent = child.cpu_times()
        except psutil.Error:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


class CpuWatch:
    """Starts when it is created. `cores` are those that the contenders are pinned to; none means all."""

    def __init__(
        self,
        cores: Sequence[int],
        *,
        stat: Path = Path("/proc/stat"),
        own: Callable[[], float] = own_seconds,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cores, self._stat, self._own, self._clock_s = cores, stat, own, clock_s
        self._begun = self._now()

    def others_share(self) -> float | None:
        """Share of the cores' time that other processes or the host took since; None where the system does not tell."""
        cores = self.others_cores()
        return cores / self._begun[3] if cores is not None and self._begun else None

    def others_cores(self) -> float | None:
        """The same as a number of cores. Threads of ours on all cores would be delayed by about this share."""
        now = self._now()
        if self._begun is None or now is None:
            return None
        (busy, mine, at_s, _), (busy_then, mine_then, then_s, _) = now, self._begun
        spent_s = at_s - then_s
        return max(0.0, (busy - busy_then) - (mine - mine_then)) / spent_s if spent_s > 0 else None

    def _now(self) -> tuple[float, float, float, int] | None:
        if not self._stat.is_file():
            return None
        lines = self._stat.read_text(encoding="utf-8").splitlines()
        rows = {
            line.split()[0]: [int(field) for field in line.split()[1:9]] for line in lines if line.startswith("cpu")
        }
        names = [f"cpu{core}" for core in self._cores] or [name for name in rows if name != "cpu"]
        watched = [rows[name] for name in names if name in rows]
        if not watched:
            return None
        busy = sum(value for row in watched for field, value in enumerate(row) if field not in _IDLE_FIELDS)
        return busy / os.sysconf("SC_CLK_TCK"), self._own(), self._clock_s(), len(watched)


def wait_until_quiet(cores: Sequence[int], *, until_s: float, look_s: float = 5.0) -> bool:
    """Waits until others use so little that they would void no turn; False at `until_s` of the monotonic clock."""
    while time.monotonic() < until_s:
        watch = CpuWatch(cores)
        time.sleep(look_s)
        if (watch.others_cores() or 0.0) <= DELAY_LIMIT:
            return True
    return False


def busy_words(others_share: float | None, delayed: float | None = None) -> str:
    """`delayed` is how long the threads of void turns waited, as a share of the turn."""
    took = f"other work took {others_share:.0%} of the CPU" if others_share is not None else "other work took the CPU"
    return took if delayed is None else f"{took}, and calls waited for it for {delayed:.0%} of their time"


def noticed(share: float | None, *, during: str = "the race") -> str:
    """A sentence when other processes were busy enough to matter."""
    if share is None or share <= NOTICED:
        return ""
    return (
        f"Other processes used {share:.0%} of the cores during {during}: times, and ratios between engines that suffer "
        "differently from it, are not those of a quiet machine."
    )
