"""A stage's sign of life, given and read as between two processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from trimaran.runtime import pulse
from trimaran.runtime.pulse import FOLDER, Pulse, Sign, sign_of


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(pulse, "_BEAT_S", 0.01)
    monkeypatch.setattr(pulse.os, "getpid", lambda: 7)
    return tmp_path


def seen(folder: Path) -> Sign:
    found = sign_of(folder, 7)
    assert found is not None
    return found


def moves(folder: Path) -> bool:
    before = seen(folder).moved_s
    time.sleep(0.1)
    return seen(folder).moved_s > before


def test_at_rest_it_beats_and_at_work_it_moves_with_the_engine(sign: Path) -> None:
    given = Pulse()
    assert moves(sign)
    asked = []
    with given.working():
        time.sleep(0.05)
        assert seen(sign).working
        assert not moves(sign), "a call that never ends would look alive"
        before = seen(sign).moved_s
        assert given.through(lambda call: asked.append(call) or "answer")("question") == "answer"
        assert seen(sign).moved_s > before
    assert not seen(sign).working
    assert moves(sign)
    assert asked == ["question"]


def test_where_nobody_looks_no_sign_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with Pulse().working():
        pass
    assert sign_of(tmp_path, 7) is None
    (tmp_path / "7").write_bytes(b"half")
    assert sign_of(tmp_path, 7) is None
