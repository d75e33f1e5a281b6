"""The published description is true: a fuzzer that believes it finds no fault, and no answer it does not describe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.gateway.conftest import Tasks
from trimaran.serving.gateway.routes import ROUTES

# A valid body may still name an unknown model or hold ids that no text has: that is refused, and should be.
EXCLUDED = "positive_data_acceptance"


def test_every_path_is_described(tasks: Tasks) -> None:
    found = tasks.gateway.ask("/openapi.json", key="").json
    assert found["openapi"].startswith("3.1")
    assert set(found["paths"]) == {*ROUTES, "/metrics"}
    assert found["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_fuzzer_finds_nothing(tasks: Tasks, tmp_path: Path, seed: int) -> None:
    # Two models answer here, so that a fuzzer would have to guess the name of one.
    tasks.gateway.ask("/classify", {"model": "text-classification", "inputs": ["the cat sat"]})
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{tasks.gateway.url}/openapi.json",
        "--header", f"Authorization: Bearer {tasks.gateway.key}", "--checks", "all", "--exclude-checks", EXCLUDED,
        "--max-examples", "15", "--seed", str(seed), "--phases", "examples,coverage,fuzzing", "--warnings", "off",
        "--no-color", "--generation-database", "none", "--generation-with-security-parameters", "false",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    answered = {line["route"] for line in tasks.gateway.log_lines() if line["status"] == 200}
    assert {*ROUTES, "/metrics"} <= answered, "each path was also asked something that it answers"
    assert not [line for line in tasks.gateway.log_lines() if line["status"] >= 500 and line["route"] != "/readyz"]
