"""The processor's own energy counter (RAPL), where the machine shows one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")


class EnergyCounter(NamedTuple):
    """The counters of all processor packages, in microjoules."""

    files: tuple[Path, ...]
    # Where each counter starts again at zero.
    ranges_uj: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"RAPL, {len(self.files)} package{'s' if len(self.files) > 1 else ''}"

    def read_uj(self) -> tuple[int, ...]:
        return tuple(int(path.read_text(encoding="utf-8")) for path in self.files)

    def joules_between(self, before: tuple[int, ...], after: tuple[int, ...]) -> float:
        """A counter may have wrapped around once: it takes about an hour, and a pass is far shorter."""
        spent = (
            end - begin if end >= begin else end + size - begin
            for begin, end, size in zip(before, after, self.ranges_uj, strict=True)
        )
        return sum(spent) / 1e6


def find_counter(root: Path = POWERCAP) -> EnergyCounter | str:
    """The counter, or a sentence that says why there is none."""
    if not root.is_dir():
        return f"This machine shows no energy counter: {root} does not exist (most virtual machines hide it)."
    zones = [
        path
        for path in sorted(root.iterdir())
        if (path / "name").is_file() and (path / "name").read_text(encoding="utf-8").startswith("package")
    ]
    if not zones:
        return f"This machine shows no energy counter: {root} has no package zone."
    files = tuple(zone / "energy_uj" for zone in zones)
    try:
        for path in files:
            path.read_text(encoding="utf-8")
        ranges = tuple(int((zone / "max_energy_range_uj").read_text(encoding="utf-8")) for zone in zones)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return f"The energy counter cannot be read: {reason}. Only root may, unless the machine is told otherwise."
    return EnergyCounter(files, ranges)
