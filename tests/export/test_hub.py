"""The hub gives all files that a deployment reads, by huggingface_hub's own rules, and weights only once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.export import zoo
from tests.export.test_embedding import sentence_model
from trimaran.core.errors import UnavailableError
from trimaran.export.locate import locate


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of a repository of the hub. It also holds what no deployment reads."""
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    source, local = tmp_path / "repository", tmp_path / "snapshot"

    def snapshot(
        name: str, *, revision: str | None, allow_patterns: Sequence[str], ignore_patterns: Sequence[str]
    ) -> str:
        assert (name, revision) == ("somebody/model", "v1")
        files = (str(path.relative_to(source)) for path in source.rglob("*") if path.is_file())
        wanted = filter_repo_objects(files, allow_patterns=[*allow_patterns], ignore_patterns=[*ignore_patterns])
        for file in wanted:
            (local / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / file, local / file)
        return str(local)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    for file in ("onnx/model.onnx", "onnx/config.json", "openvino/openvino_model.xml", "tf_model.h5", "README.md"):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes(b"none of ours")
    return source


def _fetched(repository: Path) -> set[str]:
    local = repository.parent / "snapshot"
    files = {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
    assert not {file for file in files if file.startswith(("onnx", "openvino", "tf_", "README"))}
    return files


def test_bge_m3_comes_with_both_heads_and_with_weights_that_are_only_a_pickle(repository: Path) -> None:
    import torch
    from safetensors.torch import load_file

    zoo.saved_model(repository, "xlm-roberta", "hybrid-embedding")
    torch.save(load_file(repository / "model.safetensors"), repository / "pytorch_model.bin")
    (repository / "model.safetensors").unlink()
    ref = locate("somebody/model", hub=True, revision="v1")
    assert (ref.task, ref.token_width) == ("hybrid-embedding", 24)
    assert {"pytorch_model.bin", "sparse_linear.pt", "colbert_linear.pt", "tokenizer.json"} <= _fetched(repository)


def test_no_pickle_is_fetched_beside_safetensors(repository: Path) -> None:
    sentence_model(repository.parent / "made", "bert", dense=True)
    shutil.copytree(repository.parent / "made" / "sentence", repository, dirs_exist_ok=True)
    (repository / "pytorch_model.bin").write_bytes(b"the same weights once more")
    ref = locate("somebody/model", hub=True, revision="v1")
    assert ref.width == 24
    fetched = _fetched(repository)
    assert "model.safetensors" in fetched and "pytorch_model.bin" not in fetched


def test_a_dense_module_that_is_a_pickle_is_fetched(repository: Path) -> None:
    import torch
    from safetensors.torch import load_file

    sentence_model(repository.parent / "made", "bert", dense=True)
    shutil.copytree(repository.parent / "made" / "sentence", repository, dirs_exist_ok=True)
    torch.save(load_file(repository / "2_Dense" / "model.safetensors"), repository / "2_Dense" / "pytorch_model.bin")
    (repository / "2_Dense" / "model.safetensors").unlink()
    assert locate("somebody/model", hub=True, revision="v1").width == 24
    assert "2_Dense/pytorch_model.bin" in _fetched(repository)


def test_a_hub_that_cannot_be_reached_is_said_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*arguments: object, **options: object) -> str:
        raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(UnavailableError, match="The hub did not give somebody/model: Name or service not known"):
        locate("somebody/model", hub=True)
