"""A full disk is waited for, and a run that it ended can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bulk.worlds import require_same_parts, run, written
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UnavailableError


def test_a_disk_full_for_a_moment_is_waited_for(
    artifact: Artifact, texts: list[str], whole: Path, small_disk: Path, tmp_path: Path, listening: Any
) -> None:
    source = written(tmp_path / "a.txt", texts)
    filler = small_disk / "filler"
    notes: list[str] = []

    def make_room(text: str) -> None:
        notes.append(text)
        filler.unlink(missing_ok=True)

    manifest = run(artifact, [source], small_disk / "out", progress=listening(make_room))
    assert manifest.waits_for_disk == 1
    assert "the disk is full; waiting" in notes[0]
    require_same_parts(small_disk / "out", whole, list(range(1000)))


def test_a_disk_that_stays_full_ends_the_run_and_resume_finishes_it(
    artifact: Artifact, texts: list[str], whole: Path, small_disk: Path, tmp_path: Path
) -> None:
    source = written(tmp_path / "a.txt", texts)
    filler = small_disk / "filler"
    with pytest.raises(UnavailableError, match="the disk is full"):
        run(artifact, [source], small_disk / "out", disk_wait_s=0)
    filler.unlink()
    manifest = run(artifact, [source], small_disk / "out", resume=True)
    assert manifest.parts_reused > 0
    require_same_parts(small_disk / "out", whole, list(range(1000)))
