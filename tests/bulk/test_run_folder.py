"""A resumed run keeps whole parts, makes the others again, and never writes into a folder of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bulk.worlds import require_same_parts, run, table, written
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.progress import SilentProgress

pytestmark = pytest.mark.usefixtures("workers_here")


def stamps(output: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (output / "parts").iterdir()}


def test_only_missing_and_damaged_parts_are_made_anew(
    artifact: Artifact, texts: list[str], whole: Path, tmp_path: Path
) -> None:
    source, output = written(tmp_path / "a.txt", texts), tmp_path / "out"
    run(artifact, [source], output)
    before = stamps(output)
    parts = output / "parts"
    (parts / "part-00002.parquet").unlink()
    damaged = bytearray((parts / "part-00005.parquet").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (parts / "part-00005.parquet").write_bytes(damaged)
    (output / "receipts" / "part-00007.json").write_text("{")
    (parts / ".making-part-00009.parquet").write_bytes(b"half")
    (output / "manifest.json").unlink()
    manifest = run(artifact, [source], output, resume=True)
    assert manifest.parts_reused == 7
    assert manifest.timing.rows == 300
    require_same_parts(output, whole, list(range(1000)))
    after = stamps(output)
    kept = {name for name in before if before[name] == after[name]}
    assert set(before) - kept == {"part-00002.parquet", "part-00005.parquet", "part-00007.parquet"}


def test_input_that_grew_changed_or_shrank_is_followed(artifact: Artifact, texts: list[str], tmp_path: Path) -> None:
    source, output = written(tmp_path / "a.txt", texts[:250]), tmp_path / "out"
    run(artifact, [source], output)
    written(source, texts[:320])
    grown = run(artifact, [source], output, resume=True)
    assert (grown.rows_written, grown.parts_reused) == (320, 2)
    written(source, ["bad", *texts[1:150]])
    shrunk = run(artifact, [source], output, resume=True)
    assert (shrunk.rows_written, shrunk.parts_reused, len(shrunk.parts)) == (150, 0, 2)
    assert table(output).column("row").to_pylist() == list(range(150))
    assert len(list((output / "receipts").iterdir())) == 2


def test_other_settings_do_not_go_on_in_the_same_folder(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat"])
    run(artifact, [source], tmp_path / "out")
    with pytest.raises(UsageError, match=r"was begun with shape\.dtype 'fp32', now it is 'fp16'"):
        run(artifact, [source], tmp_path / "out", resume=True, dtype="fp16")


def test_two_runs_do_not_write_at_once(artifact: Artifact, texts: list[str], tmp_path: Path) -> None:
    source, output = written(tmp_path / "a.txt", [*texts[:150], ""]), tmp_path / "out"

    class Second(SilentProgress):
        refused = False

        def note(self, text: str) -> None:
            pass

        def stage(self, title: str) -> Any:
            with pytest.raises(UsageError, match="Another run is writing"):
                run(artifact, [source], output, resume=True)
            self.refused = True
            return super().stage(title)

    second = Second()
    run(artifact, [source], output, progress=second)
    assert second.refused
