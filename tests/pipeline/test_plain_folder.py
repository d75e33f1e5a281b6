"""A stage's result as a plain folder, which is an input of the next stage and of `trimaran.load`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import trimaran
from tests.commands import trimaran as trimaran_command
from tests.commands import trimaran_here, trimaran_json, trimaran_json_here
from tests.export import zoo
from tests.tiny import tiny_artifact
from trimaran.core.errors import UsageError
from trimaran.core.store import Store
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.plain_folder import write_plain_folder


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    artifact, store = tiny_artifact(tmp_path / "store"), Store(tmp_path / "store")
    for _ in range(2):
        written = write_plain_folder(artifact, tmp_path / "out", store=store)
        assert store.open(str(written.directory)).digest == artifact.digest
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(UsageError, match="no command of trimaran wrote"):
        write_plain_folder(artifact, tmp_path / "mine", store=store)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


def test_a_deployed_model_is_written_by_its_name(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "home" / "store")
    lay_out(artifact, repository=tmp_path / "model_repository", name="tiny", rows="alone", threads=1)
    written = trimaran_json("export", "tiny", "-o", "out", home=tmp_path / "home", cwd=tmp_path)
    assert written["digest"] == artifact.digest and (tmp_path / "out" / "model.onnx").is_file()
    refused = trimaran_command("export", "-m", "tiny", "--layout", "optimum", home=tmp_path / "home", cwd=tmp_path)
    assert refused.returncode == 2 and "Add -o FOLDER" in refused.stderr


@pytest.mark.parametrize("command", ["export", "optimize", "quantize", "build-engine"])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(command: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    options = ("--to", "openvino-fp32") if command == "quantize" else ()
    for folder, reason in (("mine", "no command of trimaran wrote"), ("mine/notes.txt", "Not a directory")):
        refused = trimaran_here(command, "nothing", *options, "-o", folder, home=tmp_path / "home", cwd=tmp_path)
        assert refused.returncode == 2 and reason in refused.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("workers_here")
def test_each_stage_takes_the_folder_that_the_one_before_wrote(tmp_path: Path) -> None:
    model = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    trimaran_json_here(
        *("export", "-m", str(model), "-o", "graph", "--sequence", "1", "16", "32", "--batch", "1", "2", "4"),
        home=tmp_path / "first",
        cwd=tmp_path,
    )
    # Another store: nothing but the folder is known.
    optimize = ("optimize", "graph", "-o", "fused")
    quantize = ("quantize", "fused", "--to", "onnxruntime-int8-dynamic", "-o", "int8")
    for arguments in (optimize, quantize):
        trimaran_json_here(*arguments, home=tmp_path / "second", cwd=tmp_path)
    for name in ("graph", "int8", "fused"):
        files = {path.name for path in (tmp_path / name).iterdir()}
        assert {"model.onnx", "tokenizer.json", "config.json"} <= files
    vectors = {name: trimaran.load(tmp_path / name).encode("one text") for name in ("graph", "int8", "fused")}
    np.testing.assert_allclose(vectors["fused"], vectors["graph"], atol=1e-5)
    assert not np.array_equal(vectors["int8"], vectors["graph"])
    assert 1 - float(vectors["int8"] @ vectors["graph"]) < 0.1
