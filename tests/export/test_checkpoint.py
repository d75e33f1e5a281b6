"""Checkpoints of several files: found, named, checked and counted as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export import zoo
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.export.checkpoint import check_weights, checkpoint_facts, weight_names
from trimaran.export.locate import locate


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    import transformers

    folder = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    model = transformers.AutoModel.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def test_several_files_are_one_checkpoint(sharded: Path, tmp_path: Path) -> None:
    whole = zoo.saved_model(tmp_path / "whole", "bert", "embedding")
    assert weight_names(sharded) == weight_names(whole)
    assert checkpoint_facts(sharded, "model") == checkpoint_facts(whole, "model")


def test_a_missing_file_is_named(sharded: Path) -> None:
    missing = min(sharded.glob("*.safetensors"))
    missing.unlink()
    with pytest.raises(UsageError, match=f"{missing.name} is missing; model.safetensors.index.json lists it"):
        locate(str(sharded))


def test_a_file_that_is_cut_short_is_refused(sharded: Path) -> None:
    cut = max(sharded.glob("*.safetensors"))
    cut.write_bytes(cut.read_bytes()[:-10])
    with pytest.raises(IntegrityError, match=f"{cut.name} is damaged or cut short"):
        check_weights(sharded, "model")


def test_a_damaged_file_tells_no_names(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    assert weight_names(tmp_path) == ()
