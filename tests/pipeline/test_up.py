"""`trimaran up`: one command to a live URL, and `trimaran down`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import trimaran_json
from tests.tiny import tiny_artifact
from trimaran.core.tasks import TASKS
from trimaran.model_repository.layout import lay_out
from trimaran.serving.gateway.routes import ROUTES, route_of_task


def test_the_routes_that_are_shown_are_the_gateways() -> None:
    shown = {task: route for task in TASKS if (route := route_of_task(task))}
    assert all(task in route.tasks and route.request for task, route in shown.items())
    assert shown["feature-extraction"] is ROUTES["/score"], "a path that is there for every model answers no task"
    assert {route_of_task("embedding"), route_of_task("rerank")} == {ROUTES["/v1/embeddings"], ROUTES["/rerank"]}


@pytest.mark.slow
def test_up_prints_lines_that_work_and_down_ends_all_of_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    lay_out(
        tiny_artifact(home / "store"), repository=tmp_path / "model_repository", name="tiny", rows="alone", threads=1
    )
    command = [sys.executable, "-m", "trimaran", "up", "tiny", "--port", "0", "--json"]
    environment = {**os.environ, "TRIMARAN_HOME": str(home)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        answer = json.loads(subprocess.run(said["curl"], shell=True, capture_output=True, text=True, check=True).stdout)
        scope: dict[str, Any] = {}
        exec(said["python"], scope)
        wanted = scope["model"].encode(["The harbour was quiet.", "A storm came up."])
        np.testing.assert_allclose([row["embedding"] for row in answer["data"]], wanted, atol=1e-6)
        assert trimaran_json("down", home=home) == {"ended": [said["url"]]}
        assert process.wait(timeout=60) == 0
        assert trimaran_json("stop", home=home) == {"stopped": []}
    finally:
        process.kill()
        process.wait()
