"""Workers and runs that are killed lose no row and leave no process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.bulk.worlds import require_same_parts, run, table, vectors, written
from tests.commands import COMMAND, environment
from tests.serving.worlds import eventually, processes_with
from trimaran.bulk.run import WorkerOptions
from trimaran.bulk.run_folder import PartReceipt, RunFolder
from trimaran.core.artifact import Artifact
from trimaran.core.errors import ChildError


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
    require_same_parts(tmp_path / "out", whole, list(range(1000)))


def test_a_worker_that_always_dies_is_given_up_by_name(artifact: Artifact, tmp_path: Path) -> None:
    source = written(tmp_path / "a.txt", ["the cat"])
    doomed = artifact.model_copy(update={"execution_environment": {"LD_PRELOAD": "", "PYTHONHOME": "/nowhere"}})
    with pytest.raises(ChildError, match="died of exit code 1"):
        run(doomed.at(artifact.directory), [source], tmp_path / "out")


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
