"""What a log tells of a failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimaran.serving.triton.server_log import lost_its_port, new_log, reason_in


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I0101 fine\nE0101 failed to load 'm' version 1: Internal: no\\nmemory\nI0101 bye", "Internal: no memory"),
        ("error: creating server: Internal - failed\n", "creating server: Internal - failed"),
        ("one\n\ntwo\n", "one | two"),
        ("", "its log is empty."),
    ],
)
def test_the_reason_is_the_failures_or_else_the_last_lines(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "log").write_text(text)
    assert reason_in(tmp_path / "log") == reason


def test_no_log_has_no_reason(tmp_path: Path) -> None:
    assert reason_in(tmp_path / "log") == "its log is empty."
    assert not lost_its_port(tmp_path / "log")


def test_a_lost_port_is_seen(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("failed to start HTTP service: Unavailable - Socket '127.0.0.1:1' already in use")
    assert lost_its_port(tmp_path / "log")


def test_the_oldest_logs_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_HOME", str(tmp_path))
    folder = tmp_path / "logs"
    folder.mkdir()
    for age in range(25):
        path = folder / f"triton-{age}.log"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    (folder / "supervisor.log").touch()
    new_log().touch()
    kept = sorted(int(path.stem.split("-")[1]) for path in folder.glob("triton-?*.log") if path.stem[7:].isdigit())
    assert len(list(folder.glob("triton-*.log"))) == 20
    assert set(range(19)) <= set(kept) and (folder / "supervisor.log").exists()
