"""Runs that were broken off or damaged end with exactly the right rows, and make nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bulk.worlds import run, sentences, table, vectors, written
from tests.commands import COMMAND, environment
from tests.serving.worlds import eventually, processes_with
from trimaran.bulk.run import WorkerOptions
from trimaran.bulk.run_folder import PartReceipt, RunFolder
from trimaran.core.artifact import Artifact
from trimaran.core.errors import ChildError, UnavailableError, UsageError
from trimaran.core.progress import SilentProgress


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(1000, seed=5)


@pytest.fixture(scope="module")
def whole(artifact: Artifact, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten parts made without any trouble."""
    folder = tmp_path_factory.mktemp("whole")
    run(artifact, [written(folder / "a.txt", texts)], folder / "out")
    return folder / "out"


def same(output: Path, whole: Path) -> None:
    names = sorted(path.name for path in (whole / "parts").iterdir())
    assert sorted(path.name for path in (output / "parts").iterdir()) == names
    for name in names:
        assert (output / "parts" / name).read_bytes() == (whole / "parts" / name).read_bytes()
    assert table(output).column("row").to_pylist() == list(range(1000))


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
    same(output, whole)
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


def test_a_killed_worker_is_replaced(
    artifact: Artifact, texts: list[str], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    others = set(children())
    publish = RunFolder.publish

    def publish_and_kill(folder: RunFolder, receipt: PartReceipt) -> None:
        publish(folder, receipt)
        if not killed:
            killed.extend(set(children()) - others)
            for process in killed:
                os.kill(process, signal.SIGKILL)

    monkeypatch.setattr(RunFolder, "publish", publish_and_kill)
    source = written(tmp_path / "a.txt", texts)
    manifest = run(artifact, [source], tmp_path / "out", work=WorkerOptions(workers=2, threads=1))
    assert killed
    assert 1 <= manifest.restarts <= len(killed)
    same(tmp_path / "out", whole)


def test_a_worker_that_always_dies_is_given_up_by_name(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat"])
    doomed = artifact.model_copy(update={"execution_environment": {"LD_PRELOAD": "", "PYTHONHOME": "/nowhere"}})
    with pytest.raises(ChildError, match="died of exit code 1"):
        run(doomed.at(artifact.directory), [source], tmp_path / "out")


def test_a_disk_full_for_a_moment_is_waited_for(
    artifact: Artifact, texts: list[str], whole: Path, small_disk: Path, tmp_path: Path, listening: Any
) -> None:
    source = written(tmp_path / "a.txt", texts)
    filler = small_disk / "filler"
    heard: list[str] = []

    def make_room(text: str) -> None:
        heard.append(text)
        filler.unlink(missing_ok=True)

    manifest = run(artifact, [source], small_disk / "out", progress=listening(make_room))
    assert manifest.waits_for_disk == 1
    assert "the disk is full; waiting" in heard[0]
    same(small_disk / "out", whole)


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
    same(small_disk / "out", whole)


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_goes_on(
    artifact: Artifact, texts: list[str], home: Path, tmp_path: Path
) -> None:
    source = written(tmp_path / "a.txt", texts * 200)
    output = tmp_path / "out"
    arguments = [str(artifact.directory), "--input", str(source), "--output", str(output), "--part-rows", "500"]
    command = [*COMMAND, "encode", *arguments, "--rows", "alone"]
    first = subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert eventually(lambda: len(list((output / "receipts").glob("*.json"))) > 3 or first.poll() is not None)
        workers = children(first.pid)
        first.send_signal(signal.SIGKILL)
    finally:
        first.kill()
        first.communicate()
    assert eventually(lambda: not any(Path(f"/proc/{process}").exists() for process in workers))
    done = len(list((output / "receipts").glob("*.json")))
    assert 3 < done < 400
    second = subprocess.run([*command, "--resume", "--json"], env=environment(home), capture_output=True, check=True)
    assert json.loads(second.stdout)["parts_reused"] == done
    assert table(output).column("row").to_pylist() == list(range(200_000))
    assert vectors(output).shape == (200_000, 8)
    assert not processes_with(str(output))


def children(parent: int | None = None) -> list[int]:
    return [child.pid for child in psutil.Process(parent).children(recursive=True)]
