"""The plan as a Triton model of its own; `tests/rehearsal/test_trtexec.py` opens one in the real Triton."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import config_from_pbtxt
from trimaran.runtime.triton_plan_engine import Engine, configuration, triton_with_tensorrt, visible_device


def test_the_configuration_has_the_tensors_of_the_manifest(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    config = config_from_pbtxt(configuration(json.loads(artifact.to_json())))
    assert (config.name, config.backend, config.max_batch_size) == ("plan", "tensorrt", artifact.profile.batch.maximum)
    assert [item.name for item in config.inputs] == list(artifact.signature.input_names)
    assert {(item.data_type, item.dims) for item in config.inputs} == {("TYPE_INT64", (-1,))}
    assert [item.name for item in config.outputs] == list(artifact.signature.output_names)


def test_one_gpu_is_shown_by_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_device(1) == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert visible_device(1) == "7"


def test_without_such_a_triton_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_TRITON", str(tmp_path))
    assert triton_with_tensorrt() is None
    with pytest.raises(RuntimeError, match="no Triton with a tensorrt backend"):
        Engine(str(tmp_path / "model.plan"), threads=1)
