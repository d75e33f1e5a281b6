"""Tasks that ask and answer with more than one text and one vector, through the whole line by one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import trimaran_json
from tests.export.zoo import saved_model
from trimaran.judging.golden import read_golden
from trimaran.quantize.candidates import CANDIDATES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("task", ["question-answering", "fill-mask"])
def test_a_task_is_deployed_proven_over_the_wire_and_verified_live(tmp_path: Path, task: str) -> None:
    home = tmp_path / "home"
    model = saved_model(tmp_path / "model", "bert", task)
    said = trimaran_json(
        "deploy", "-m", model, "--task", task, "--name", "tiny", "--candidates", "onnxruntime-fused",
        home=home, cwd=tmp_path,
    )  # fmt: skip
    assert said["served"]["batch_change"] <= 1e-5
    repository = tmp_path / "model_repository"
    golden = read_golden(repository / "tiny" / "1" / "golden.json")
    assert (golden.task, len(golden.rows)) == (task, 64)
    running = trimaran_json("serve", repository, "--free-ports", "--detach", home=home)
    try:
        url = f"127.0.0.1:{running['grpc_port']}"
        (found,) = trimaran_json("verify", url, "-r", repository, home=home)["models"]
    finally:
        trimaran_json("stop", repository, home=home)
    assert found["holds"] and found["rows"] == 64


def test_every_candidate_that_competes_unasked_is_made_judged_and_measured(tiny_model: Path, tmp_path: Path) -> None:
    said = trimaran_json(
        "deploy", "-m", tiny_model, "--name", "tiny", "--budget", "5", "--no-serve-check",
        home=tmp_path / "home", cwd=tmp_path,
    )  # fmt: skip
    found = {row["name"]: row for row in said["candidates"]}
    assert set(found) == {row.name for row in CANDIDATES.values() if row.default}
    assert not [row["name"] for row in found.values() if row["verdict"] == "failed"]
    stopped = [row for row in found.values() if row["verdict"] == "stopped"]
    assert all("not searched" in row["reason"] for row in stopped)
    assert all(row["speedup"] and row["quality"] for row in found.values() if row not in stopped)
