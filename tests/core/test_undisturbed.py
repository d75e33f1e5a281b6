from __future__ import annotations

from pathlib import Path

from trimaran.core.undisturbed import Disturbance, waited_ns


def test_the_waits_of_all_threads_are_added(tmp_path: Path) -> None:
    for thread, wait_ns in ((1, 500), (2, 70)):
        (tmp_path / str(thread)).mkdir()
        (tmp_path / str(thread) / "schedstat").write_text(f"9000 {wait_ns} 3\n")
    assert waited_ns(tmp_path) == 570
    assert waited_ns(tmp_path / "none") is None


def test_a_process_that_does_nothing_hardly_waits() -> None:
    found = Disturbance().found()
    assert set(found) == {"delayed", "yardstick_ns"} and found["yardstick_ns"]
