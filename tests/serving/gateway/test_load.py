"""A short version of `benchmarks/load.py`: overload makes no answer wrong and loses none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment
from trimaran.serving.triton.server import Server

ROOT = Path(__file__).parents[3]
# What a busy machine cannot make untrue; the others are for the benchmark, on a quiet one.
CLAIMS = ("no wrong answer", "no lost answer", "every refusal a proper status")


# A capacity measured in a busy moment is too low: thirty times that is too much for any machine.
@pytest.mark.slow
@pytest.mark.parametrize("target", ["gateway", "triton"])
def test_overload_loses_nothing(server: Server, tmp_path: Path, target: str) -> None:
    command = [
        sys.executable, str(ROOT / "benchmarks" / "load.py"), str(server.repository), "vectors", "--target", target,
        "--callers", "60", "--seconds", "3", "--capacity-seconds", "1.5", "--in-flight", "2", "--queue", "2",
        "--factor", "30", "-o", str(tmp_path / "result.json"),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(tmp_path / "home"), capture_output=True, text=True, check=False)
    assert (tmp_path / "result.json").is_file(), done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert {claim: result["claims"][claim] for claim in CLAIMS} == dict.fromkeys(CLAIMS, True), result["statuses"]
    assert result["statuses"]["200"] > 0
    if target == "gateway":
        assert result["statuses"]["503"] > 0, "more was sent than could be taken"
