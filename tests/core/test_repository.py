"""A repository as its files describe it: models, versions, and what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import read_config, write_config
from trimaran.core.errors import IntegrityError, RepositoryError, UsageError
from trimaran.core.model_config import ModelConfig
from trimaran.core.repository import models_in, versions_of
from trimaran.core.serving_json import SERVING_FILE, read_serving, write_serving
from trimaran.model_repository.layout import lay_out


def test_models_are_listed_with_their_task_and_what_is_served(tmp_path: Path) -> None:
    for _ in range(2):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    listed = [(model.name, model.task, model.on_demand, model.served) for model in models_in(tmp_path / "r")]
    assert listed == [("m", "embedding", False, (1,)), ("m_onnxruntime", "", True, (1,))]
    path = tmp_path / "r" / "m" / "config.pbtxt"
    write_config(path, read_config(path).model_copy(update={"served_versions": (2,)}))
    assert models_in(tmp_path / "r")[0].served == (2,)
    write_config(path, read_config(path).model_copy(update={"served_versions": ()}))
    assert models_in(tmp_path / "r")[0].served == (2,), "the newest, in repositories of before"


def test_a_model_whose_configuration_cannot_be_read_is_listed_too(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: [")
    (listed,) = models_in(tmp_path)
    assert (listed.name, listed.config, listed.task, listed.on_demand, listed.served) == ("m", None, "", False, ())


def test_only_numbered_folders_are_versions(tmp_path: Path) -> None:
    for name in ("10", "9", "warmup", ".making-1-a"):
        (tmp_path / "m" / name).mkdir(parents=True)
    (tmp_path / "m" / "11").write_text("a file")
    assert versions_of(tmp_path / "m") == (9, 10)
    assert versions_of(tmp_path / "nobody") == ()


def test_one_group_on_a_gpu_makes_a_model_a_gpu_model(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m" instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU }')
    assert read_config(path).on_gpu
    path.write_text('name: "m" instance_group { kind: KIND_CPU } instance_group { kind: KIND_CPU }')
    assert not read_config(path).on_gpu
    assert ModelConfig(name="m", backend="tensorrt", max_batch_size=1, inputs=(), outputs=()).on_gpu


@pytest.mark.parametrize("content", [None, b"\xff", b"nonsense: {"], ids=["missing", "no UTF-8", "nonsense"])
def test_a_configuration_that_cannot_be_read_is_named_by_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "config.pbtxt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RepositoryError, match=r"config\.pbtxt cannot be read"):
        read_config(path)


def test_serving_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="alone", threads=3)
    version = made.repository / "m" / "1"
    serving = read_serving(version)
    assert (serving.rows, serving.threads, serving.task) == ("alone", 3, "embedding")
    write_serving(tmp_path, serving)
    assert read_serving(tmp_path) == serving
    (tmp_path / SERVING_FILE).write_text("{}")
    with pytest.raises(IntegrityError, match=r"not a readable serving\.json"):
        read_serving(tmp_path)
    with pytest.raises(UsageError, match=r"was not laid out by trimaran: it has no serving\.json"):
        read_serving(made.repository / "m")
