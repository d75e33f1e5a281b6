"""What a deploy writes: two models, whole versions, nothing overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model_repository.worlds import changed, ir_artifact
from tests.tiny import LABELS, tiny_artifact
from trimaran.core.artifact import MANIFEST
from trimaran.core.config_pbtxt import config_from_pbtxt
from trimaran.core.errors import IntegrityError, RepositoryError, UsageError
from trimaran.core.model_config import InstanceGroup, ModelConfig
from trimaran.core.spec import Range, ShapeProfile, Signature, TensorSpec
from trimaran.core.tasks import TASKS
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.model_repository.stages import TEXT_FILES


def config_of(deployment: Deployment, model: str) -> ModelConfig:
    return config_from_pbtxt(
        (deployment.repository / model / str(deployment.version) / "config.pbtxt").read_text(encoding="utf-8")
    )


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_task_is_served_as_text() -> None:
    assert {row.served.name for row in TASKS.values()} == set(TASKS)


def test_an_onnx_artifact_becomes_a_self_contained_text_stage_and_a_plain_model(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    made = lay_out(artifact, repository=tmp_path / "r", name="m", rows="equal-length", threads=2)
    assert made == Deployment(repository=tmp_path / "r", name="m", version=1, models=("m", "m_onnxruntime"))
    assert files_of(tmp_path / "r" / "m" / "1") == {
        "model.py", *TEXT_FILES, "onnxruntime_engine.py", "model.onnx", "tokenizer.json", "serving.json",
        "manifest.json", "config.pbtxt", "digests.json",
    }  # fmt: skip
    assert files_of(tmp_path / "r" / "m_onnxruntime" / "1") == {
        "model.onnx", "serving.json", "manifest.json", "config.pbtxt", "digests.json",
    }  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["m", "m_onnxruntime"]


def test_the_text_stage_takes_text_and_gives_vectors_in_bounded_batches(tmp_path: Path) -> None:
    made = lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    config = config_of(made, "m")
    assert [(item.name, item.data_type, item.dims, item.optional) for item in config.inputs] == [
        ("TEXT", "TYPE_STRING", (1,), False),
        ("TEXT_PAIR", "TYPE_STRING", (1,), True),
    ]
    assert [(item.name, item.data_type, item.dims) for item in config.outputs] == [
        ("EMBEDDING", "TYPE_FP32", (8,)),
        ("TRUNCATED", "TYPE_INT32", (1,)),
        ("TOKEN_COUNT", "TYPE_INT32", (1,)),
    ]
    assert config.max_batch_size == 4
    assert config.instance_group == InstanceGroup(count=1, spares=1)
    assert config.dynamic_batching and config.dynamic_batching.queue
    assert config.dynamic_batching.queue.max_queue_size == 64
    assert config.dynamic_batching.queue.timeout_action == "REJECT"
    assert [item.file for warmup in config.warmups for item in warmup.inputs] == ["8-words"]


def test_a_classifier_gives_labels_and_scores(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s", task="text-classification")
    made = lay_out(artifact, repository=tmp_path / "r", name="m", rows="alone", threads=1)
    assert [(item.name, item.dims) for item in config_of(made, "m").outputs] == [
        ("LABELS", (3,)),
        ("SCORES", (3,)),
        ("TRUNCATED", (1,)),
        ("TOKEN_COUNT", (1,)),
    ]
    serving = json.loads((tmp_path / "r" / "m" / "1" / "serving.json").read_text())
    assert (serving["labels"], serving["rows"], serving["schema"]) == (list(LABELS), "alone", 1)


@pytest.mark.parametrize(("rows", "batched"), [("padded", True), ("equal-length", False), ("alone", False)])
def test_plain_tensors_are_batched_only_where_padding_is_proven(tmp_path: Path, rows: str, batched: bool) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    made = lay_out(artifact, repository=tmp_path / "r", name="m", rows=rows, threads=2)  # type: ignore[arg-type]
    config = config_of(made, "m_onnxruntime")
    assert (config.dynamic_batching is not None) is batched
    assert ("batching" in config.parameters) is not batched
    assert config.parameters["intra_op_thread_count"] == "2"


def test_an_ir_is_named_as_the_official_backend_wants_it(tmp_path: Path) -> None:
    made = lay_out(ir_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert made.models == ("m", "m_openvino")
    assert {"model.xml", "model.bin"} <= files_of(tmp_path / "r" / "m_openvino" / "1")
    assert config_of(made, "m_openvino").default_model_filename == ""


def test_onnx_for_openvino_says_its_file_name(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s", backend="openvino")
    made = lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert config_of(made, "m_openvino").default_model_filename == "model.onnx"


def test_weights_are_on_disk_once(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    inodes = {path.stat().st_ino for path in (artifact.entry_path, *(tmp_path / "r").glob("*/1/model.onnx"))}
    assert len(inodes) == 1


def test_weights_are_copied_where_they_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    artifact = tiny_artifact(tmp_path / "s")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert (tmp_path / "r" / "m" / "1" / "model.onnx").read_bytes() == artifact.entry_path.read_bytes()


def test_a_second_deploy_adds_a_version_and_touches_none(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    before = {path: path.read_bytes() for path in (tmp_path / "r" / "m" / "1").rglob("*") if path.is_file()}
    second = lay_out(artifact, repository=tmp_path / "r", name="m", rows="alone", threads=2)
    assert second.version == 2
    assert {path: path.read_bytes() for path in (tmp_path / "r" / "m" / "1").rglob("*") if path.is_file()} == before
    assert config_of(second, "m_onnxruntime").dynamic_batching is None


def test_another_engine_takes_the_next_number_of_the_name(tmp_path: Path) -> None:
    for backend in ("onnxruntime", "openvino"):
        artifact = tiny_artifact(tmp_path / "s", backend=backend)
        made = lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert (made.version, made.models) == (2, ("m", "m_openvino"))
    assert not (tmp_path / "r" / "m_onnxruntime" / "2").exists()
    assert (tmp_path / "r" / "m_openvino" / "2").is_dir()


def test_a_version_with_other_answers_is_refused_with_both_named(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    other = tiny_artifact(tmp_path / "s", task="text-classification")
    with pytest.raises(RepositoryError) as caught:
        lay_out(other, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert "embedding" in str(caught.value) and "LABELS [3]" in str(caught.value) and "--name" in str(caught.value)
    assert sorted(path.name for path in (tmp_path / "r" / "m").iterdir()) == ["1", "config.pbtxt", "warmup"]


def test_the_report_travels_along_from_a_file_or_its_folder(tmp_path: Path) -> None:
    report = tmp_path / "reports" / "report.json"
    report.parent.mkdir()
    report.write_text("{}")
    for given in (report, report.parent):
        made = lay_out(
            tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1, report=given
        )
        assert (tmp_path / "r" / "m" / str(made.version) / "report.json").read_text() == "{}"


def test_a_damaged_artifact_is_noticed_and_leaves_nothing(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    data = bytearray(artifact.entry_path.read_bytes())
    data[40] ^= 1
    artifact.entry_path.write_bytes(data)
    with pytest.raises(IntegrityError, match="differs from its manifest"):
        lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "with space"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a model"):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name=name, rows="padded", threads=1)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot be written.*-o"):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "file", name="m", rows="padded", threads=1)


def test_a_killed_layout_leaves_no_model_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    code = f"""
import os, shutil
from pathlib import Path
from trimaran.core.artifact import load_artifact
from trimaran.model_repository import layout
layout.publish = lambda folder, target: os._exit(9)
layout.lay_out(load_artifact(Path({str(artifact.directory)!r})), repository=Path({str(tmp_path / "r")!r}), name="m",
               rows="padded", threads=1)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert [path.name.startswith(".making-") for path in (tmp_path / "r").iterdir()] == [True]
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["m", "m_onnxruntime"]


def test_two_layouts_at_once_take_two_versions(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    code = f"""
from pathlib import Path
from trimaran.core.artifact import load_artifact
from trimaran.model_repository.layout import lay_out
made = lay_out(load_artifact(Path({str(artifact.directory)!r})), repository=Path({str(tmp_path / "r")!r}), name="m",
               rows="padded", threads=1)
print(made.version)
"""
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    assert sorted(int(child.communicate()[0]) for child in children) == [1, 2, 3]


def test_the_stages_import_nothing_of_trimaran(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    for path in (tmp_path / "r" / "m" / "1").glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if line.lstrip().startswith(("import trimaran", "from trimaran"))]


def test_other_inputs_of_the_engine_are_another_interface(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    extra = TensorSpec(name="token_type_ids", dtype="int64", dims=("batch", "sequence"))
    signature = Signature(inputs=(*artifact.signature.inputs, extra), outputs=artifact.signature.outputs)
    with pytest.raises(RepositoryError, match="token_type_ids"):
        lay_out(
            changed(artifact, tmp_path / "s", signature=signature),
            repository=tmp_path / "r",
            name="m",
            rows="padded",
            threads=1,
        )


def test_prompts_are_an_option_that_later_versions_may_add_but_not_take_away(tmp_path: Path) -> None:
    plain = tiny_artifact(tmp_path / "s")
    spec = {**plain.tokenizer.model_dump(), "prompts": {"query": "the ", "document": ""}, "default_prompt": "query"}
    prompted = changed(plain, tmp_path / "s", tokenizer=spec)
    first = lay_out(plain, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert "OPTIONS" not in {tensor.name for tensor in config_of(first, "m").inputs}
    assert "prompts" not in config_of(first, "m").parameters
    second = lay_out(prompted, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert [tensor.name for tensor in config_of(second, "m").inputs if tensor.optional] == ["TEXT_PAIR", "OPTIONS"]
    assert json.loads(config_of(second, "m").parameters["prompts"]) == ["query", "document"]
    with pytest.raises(RepositoryError, match="Callers of one cannot call the other"):
        lay_out(plain, repository=tmp_path / "r", name="m", rows="padded", threads=1)


def test_a_model_with_prompts_is_no_ensemble_because_its_options_must_be_read(tmp_path: Path) -> None:
    plain = tiny_artifact(tmp_path / "s")
    spec = {**plain.tokenizer.model_dump(), "prompts": {"query": "the "}, "default_prompt": ""}
    for name, artifact in (("plain", plain), ("asks", changed(plain, tmp_path / "s", tokenizer=spec))):
        made = lay_out(artifact, repository=tmp_path / "r", name=name, rows="padded", threads=1, separate=True)
        assert config_of(made, name).ensemble == (name == "plain")


def test_another_profile_is_tuning_and_goes_into_the_configuration(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    profile = ShapeProfile(batch=Range.of((1, 1, 2)), sequence=Range.of((1, 12, 16)))
    other = changed(artifact, tmp_path / "s", profile=profile)
    made = lay_out(other, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert config_of(made, "m").max_batch_size == 2
    assert {"8-words", "12-words"} <= {path.name for path in (tmp_path / "r" / "m" / "warmup").iterdir()}
    kept = config_from_pbtxt((tmp_path / "r" / "m" / "1" / "config.pbtxt").read_text())
    assert kept.max_batch_size == 4


def test_the_manifest_travels_unchanged(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    for model in ("m", "m_onnxruntime"):
        travelled = (tmp_path / "r" / model / "1" / MANIFEST).read_bytes()
        assert travelled == (artifact.directory / MANIFEST).read_bytes()
    assert (tmp_path / "r" / "m" / "1" / MANIFEST).stat().st_nlink == 1
