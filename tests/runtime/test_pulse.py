"""A stage's sign of life, given and read as between two processes."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from trimaran.runtime import pulse
from trimaran.runtime.pulse import FOLDER, Pulse, Sign, sign_of

NEVER_S = 1e6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(pulse.os, "getpid", lambda: 7)
    return tmp_path


def ticking() -> Pulse:
    """By a clock that goes one second further at each look; its thread never beats by itself."""
    seconds = itertools.count(1)
    return Pulse(now_s=lambda: float(next(seconds)), beat_s=NEVER_S)


def test_at_rest_each_beat_moves_the_sign(folder: Path) -> None:
    given = ticking()
    assert sign_of(folder, 7) == Sign(1.0, False)
    given.beat()
    given.beat()
    assert sign_of(folder, 7) == Sign(3.0, False)


def test_at_work_only_the_engine_moves_the_sign(folder: Path) -> None:
    given, asked = ticking(), []
    with given.working():
        assert sign_of(folder, 7) == Sign(2.0, True)
        given.beat()
        assert sign_of(folder, 7) == Sign(2.0, True), "a call that never ends would look alive"
        during = []
        call = given.through(lambda request: (asked.append(request), during.append(sign_of(folder, 7)), "answer")[-1])
        assert call("question") == "answer"
        assert (asked, during) == (["question"], [Sign(3.0, True)])
        assert sign_of(folder, 7) == Sign(4.0, True)
    assert sign_of(folder, 7) == Sign(5.0, False)
    given.beat()
    assert sign_of(folder, 7) == Sign(6.0, False)


def test_a_stage_that_fails_is_at_rest_again(folder: Path) -> None:
    given = ticking()
    with pytest.raises(LookupError), given.working():
        raise LookupError
    assert sign_of(folder, 7) == Sign(3.0, False)


def test_it_beats_by_itself(folder: Path) -> None:
    beaten, own = threading.Event(), threading.get_ident()

    def now_s() -> float:
        if threading.get_ident() != own:
            beaten.set()
        return 1.0

    Pulse(now_s=now_s, beat_s=0.05)
    assert beaten.wait(timeout=60)


def test_where_nobody_looks_no_sign_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with Pulse().working():
        pass
    assert sign_of(tmp_path, 7) is None
    (tmp_path / "7").write_bytes(b"half")
    assert sign_of(tmp_path, 7) is None
