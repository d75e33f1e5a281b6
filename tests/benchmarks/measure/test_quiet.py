from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from trimaran.benchmarks.measure import quiet as module
from trimaran.benchmarks.measure.quiet import CpuWatch, noticed, own_seconds, wait_until_quiet

TICK = os.sysconf("SC_CLK_TCK")


def stat(path: Path, *busy_s: float) -> Path:
    """A /proc/stat whose cores were busy for so many seconds, and idle for a hundred."""
    lines = [f"cpu{core} {int(seconds * TICK)} 0 0 {100 * TICK} 7 0 0 0 0 0" for core, seconds in enumerate(busy_s)]
    path.write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 0 0", *lines, "intr 1"]) + "\n")
    return path


@pytest.mark.parametrize(
    ("cores", "own_s", "share"),
    [((0, 1), 6.0, 0.2), ((0, 1), 10.0, 0.0), ((0,), 2.0, 0.2), ((), 0.0, 0.4), ((0, 1), 11.0, 0.0)],
)
def test_what_the_cores_did_and_we_did_not_was_done_by_others(
    tmp_path: Path, cores: tuple[int, ...], own_s: float, share: float
) -> None:
    """In ten seconds core 0 was busy for four, core 1 for six, and core 2, which only counts unpinned, for two."""
    own, now = [0.0], [0.0]
    path = stat(tmp_path / "stat", 50.0, 50.0, 50.0)
    watch = CpuWatch(cores, stat=path, own=lambda: own[0], clock_s=lambda: now[0])
    stat(path, 54.0, 56.0, 52.0)
    own[0], now[0] = own_s, 10.0
    assert watch.others_share() == pytest.approx(share)


def test_a_quiet_machine_is_not_remarked_on_and_a_busy_one_is() -> None:
    assert noticed(None) == noticed(0.01) == ""
    assert "used 40% of the cores" in noticed(0.4)


@pytest.mark.parametrize(("others_s", "quiet"), [(0.2, True), (0.3, False)])
def test_a_machine_is_quiet_enough_where_others_would_void_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_s: float, quiet: bool
) -> None:
    """Of each second, others take a part of one of two cores."""
    path, now = stat(tmp_path / "stat", 0.0, 0.0), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        stat(path, now[0] * others_s, 0.0)

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(module, "time", clock)
    watch = partial(CpuWatch, stat=path, own=lambda: 0.0, clock_s=clock.monotonic)
    monkeypatch.setattr(module, "CpuWatch", watch)
    assert wait_until_quiet((0, 1), until_s=60.0, look_s=10.0) == quiet
    assert now[0] == (10.0 if quiet else 60.0)


def test_a_system_that_does_not_tell_is_taken_at_its_silence(tmp_path: Path) -> None:
    assert CpuWatch((0,), stat=tmp_path / "none").others_share() is None


def test_our_own_work_is_counted_as_ours() -> None:
    before = own_seconds()
    sum(range(3_000_000))
    assert own_seconds() > before
