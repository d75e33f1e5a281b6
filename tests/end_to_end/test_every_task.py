"""Tasks that ask and answer with more than one text and one vector, through the whole line by one command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.commands import trimaran, trimaran_json
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


@pytest.mark.timeout(1800)
def test_what_deploy_prints_at_its_end_works_as_it_is_printed(tmp_path: Path) -> None:
    """Each line is typed as it stands, with the port of this test's server after it."""
    home = tmp_path / "home"
    printed: dict[str, dict[str, list[str]]] = {}
    for task in ("embedding", "question-answering", "rerank", "zero-shot-classification", "fill-mask"):
        model = saved_model(tmp_path / task, "bert", task)
        done = trimaran(
            "deploy", "-m", model, "--task", task, "--name", task, "--candidates", "onnxruntime-fused",
            "--no-serve-check", home=home, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [line.split(maxsplit=1) for line in done.stderr.splitlines()]
        printed[task] = {line[0]: shlex.split(line[1]) for line in lines if line and line[0] in ("Serve", "Ask")}
    (serve,) = {tuple(lines["Serve"]) for lines in printed.values()}
    running = trimaran_json(*serve[1:], "--free-ports", "--detach", home=home)
    try:
        for task, lines in printed.items():
            assert lines["Ask"][:3] == ["trimaran", "query", task]
            done = trimaran(*lines["Ask"][1:], "--url", f"127.0.0.1:{running['grpc_port']}", home=home)
            assert done.returncode == 0, done.stderr
            # Spans and fillings are tables below their text; other answers follow it on its line.
            below = task in ("question-answering", "fill-mask")
            assert done.stdout.startswith(lines["Ask"][3] + ("\n" if below else "\t"))
    finally:
        trimaran_json("stop", serve[2], home=home)


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
