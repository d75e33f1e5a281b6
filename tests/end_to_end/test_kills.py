"""Runs that are killed at each stage leave nothing that a later run would take for whole."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.commands import COMMAND, environment, trimaran_json
from tests.texts import judging_pairs
from trimaran.core.artifact import load_artifact

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CANDIDATES = "onnxruntime-fused,openvino-fp32"
# Killed a moment after this stage was reported as done, that is, inside the one that follows.
STAGES = ("", "export", "optimize", "openvino-fp32", "measure", "served check")
# Seconds between the report and the kill, where one second is not right: starting takes longer, and laying out the
# repository after the served check is over at once.
WAITS_S = {"": 3.0, "served check": 0.0}


def run_and_kill(arguments: list[str], home: Path, cwd: Path, after: str) -> int:
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=environment(home), cwd=cwd, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr if after else ():
        if re.match(rf"(\[\d+ of \d+\] )?{after}:", line):
            break
    time.sleep(WAITS_S.get(after, 1.0))
    assert process.poll() is None, f"the run ended before it was killed after {after or 'its start'!r}"
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended by itself, so nothing was killed"
    process.stderr.close()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive, "children outlived the killed run"
    return process.pid


def test_a_run_killed_at_each_stage_is_followed_by_a_good_one(tiny_model: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    judging = str(judging_pairs(tmp_path / "judging.jsonl"))
    arguments = ["deploy", "-m", str(tiny_model), "--name", "tiny", "--candidates", CANDIDATES, "--quick"]
    arguments += ["--judging", judging]
    killed: list[int] = []
    for stage in STAGES:
        killed.append(run_and_kill(arguments, home, tmp_path, stage))
        published = [path for path in (home / "store").glob("*-*") if not path.name.startswith(".")]
        for folder in published:
            load_artifact(folder)
    said = trimaran_json(*arguments, home=home, cwd=tmp_path)
    assert said["winner"]
    assert not list((home / "store").glob(".making-*")), "what the killed runs left is swept"
    assert trimaran_json("repository", "check", tmp_path / "model_repository", home=home)["problems"] == []
    assert not [path.name for path in Path("/dev/shm").glob("trimaran-*") if int(path.name.split("-")[1]) in killed]
