"""Files of a stranger's model: ten million layers, JSON of endless depth, names that lead out of the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.late_interaction import saved_late
from tests.homes import home_at
from tests.tiny import tiny_artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.export.checkpoint import weight_files
from trimaran.export.locate import locate
from trimaran.model_repository.layout import lay_out
from trimaran.serving.triton.undamaged import require_loadable

CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 30, "max_position_embeddings": 16,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from safetensors.numpy import save_file

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file({"embeddings.word_embeddings.weight": np.zeros((30, 8), np.float32)}, folder / "model.safetensors")
    (tmp_path / "secret.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10_000_000},
        {"num_hidden_layers": -1},
        {"hidden_size": 10**9},
        {"vocab_size": 10**12},
        {"num_attention_heads": 0},
        {"model_type": "modernbert", "architectures": ["ModernBertModel"], "num_hidden_layers": 10_000_000},
    ],
    ids=str,
)
def test_impossible_sizes_are_refused(folder: Path, change: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(UsageError, match="are possible"):
        locate(str(folder), task_name="feature-extraction")


@pytest.mark.parametrize("name", ["config.json", "modules.json", "model.safetensors.index.json"])
def test_json_of_endless_depth_is_damaged(folder: Path, name: str) -> None:
    if "index" in name:
        (folder / "model.safetensors").unlink()
    (folder / name).write_text('{"a":' * 200_000)
    with pytest.raises(IntegrityError, match="is not JSON"):
        locate(str(folder), task_name="feature-extraction")


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A late-interaction model, which fills queries up to a length that its folder names."""
    return saved_late(tmp_path_factory.mktemp("late") / "model")


@pytest.mark.parametrize(
    "change",
    [{"query_expansion": {"strategy": "fixed", "length": 10**9}}, {"query_length": 10**9}, {"document_length": -1},
     {"query_expansion": {"strategy": "fixed"}}, {"query_expansion": "fixed"}],
    ids=str,
)  # fmt: skip
def test_queries_are_not_filled_up_to_any_length(late: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    """A billion tokens are a hundred gigabytes in the tokenizer alone."""
    folder = shutil.copytree(late, tmp_path / "model")
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **change}))
    with pytest.raises(UsageError, match="are possible"):
        locate(str(folder))


@pytest.mark.parametrize(
    "change",
    [{"profile": {"batch": [1, 1, 1], "sequence": [10**9, 10**9, 10**9]}},
     {"tokenizer": {"pad_id": 0, "inputs": ["input_ids"], "sides": {"query": {"width": 10**9}}}}],
    ids=["a sequence", "an expanded query"],
)  # fmt: skip
def test_a_version_names_no_billion_of_tokens(tmp_path: Path, change: dict[str, Any]) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    path = tmp_path / "r" / "m" / "1" / "serving.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    # The stranger writes the list too.
    list_digests(path.parent, model="m", version=1)
    with home_at(tmp_path / "home"), pytest.raises(IntegrityError, match=r"serving\.json"):
        require_loadable(tmp_path / "r", "m")


@pytest.mark.parametrize("outside", ["../secret.safetensors", "/etc/passwd", "a/../../secret.safetensors"])
def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path, outside: str) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": outside}}))
    with pytest.raises(IntegrityError, match="not inside the folder"):
        weight_files(index)


@pytest.mark.parametrize("outside", ["..", "/", "x/../../.."])
def test_a_module_that_leads_out_of_the_folder_is_refused(folder: Path, outside: str) -> None:
    modules = [{"type": "sentence_transformers.models.Transformer", "path": outside}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(IntegrityError, match="not inside the folder"):
        locate(str(folder))
