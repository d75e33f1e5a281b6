"""Daily commands find the running server by themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commands import COMMAND, environment, trimaran, trimaran_json, trimaran_json_here
from tests.homes import home_at
from tests.serving.worlds import logits_by_hand
from tests.tiny import LABELS, tiny_artifact
from trimaran.core.errors import UsageError
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.live import live_url
from trimaran.serving.container.image import release_of

TEXTS = ["good dog", "the bad cat"]


def _a_second_model_and_a_second_version(home: Path, cwd: Path, artifact: str) -> None:
    """`list`, `status` and Triton agree while the repository of a running server grows."""

    def served() -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        listed = trimaran_json_here("list", home=home, cwd=cwd)["models"]
        (server,) = trimaran_json_here("status", home=home, cwd=cwd)["servers"]
        assert server["not_loaded"] == []
        loaded = {(model["name"], int(model["version"])) for model in server["models"]}
        return {(model["name"], number) for model in listed for number in model["served"] if model["task"]}, loaded

    for name in ("more", "classes"):
        trimaran_json_here("repository", "lay-out", artifact, "--name", name, "--unproven", home=home, cwd=cwd)
    listed, loaded = served()
    assert listed == loaded == {("classes", 1), ("more", 1)}
    assert len(trimaran_json_here("query", "more", "good dog", home=home, cwd=cwd)["answers"]) == 1
    promoted = trimaran_json_here("promote", "classes", "2", "--no-prove", home=home, cwd=cwd)
    assert len(promoted["servers"]) == 1
    listed, loaded = served()
    assert listed == loaded == {("classes", 2), ("more", 1)}


@pytest.mark.slow
def test_query_status_and_logs_need_no_url(tmp_path: Path) -> None:
    home = tmp_path / "home"
    artifact = tiny_artifact(home / "store", task="text-classification")
    lay_out(artifact, repository=tmp_path / "model_repository", name="classes", rows="alone", threads=1)
    trimaran_json("serve", "model_repository", "--free-ports", "--detach", home=home)
    try:
        asked = subprocess.run(
            [*COMMAND, "query", "classes", "--top-k", "1"],
            input="\n".join(TEXTS),
            cwd=tmp_path,
            env=environment(home),
            capture_output=True,
            text=True,
            check=True,
        )
        best = [LABELS[row.argmax()] for row in logits_by_hand(TEXTS)]
        assert [line.split("\t")[0] for line in asked.stdout.splitlines()] == TEXTS
        assert [line.split("\t")[1].split()[0] for line in asked.stdout.splitlines()] == best
        with home_at(home), pytest.raises(UsageError, match=r"No running server has nothing\. They have: classes"):
            live_url("nothing", "grpc")
        (server,) = trimaran_json("status", home=home)["servers"]
        assert server["answers"] and server["memory_bytes"] > 0
        (model,) = (row for row in server["models"] if row["name"] == "classes")
        assert model["version"] == "1" and model["answered"] > 0 and model["failed"] == 0
        assert f"1:{model['digest']}" == release_of(tmp_path / "model_repository", "classes") and model["digest"]
        assert f"classes version 1 ({model['digest']})" in trimaran("status", home=home).stdout
        assert "classes" in trimaran("logs", home=home).stdout
        _a_second_model_and_a_second_version(home, tmp_path, str(artifact.directory))
    finally:
        trimaran_json("stop", home=home)
