"""One tiny bad repository for each code of the check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model_repository.worlds import changed, ir_artifact
from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.digests import list_digests
from trimaran.core.engine_identity import machine_identity
from trimaran.core.errors import RepositoryError
from trimaran.model_repository.check import problems, require_sound
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.problem import REMEDIES
from trimaran.model_repository.versions import pin


def laid_out(tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    lay_out(tiny_artifact(tmp_path / "s"), repository=repository, name="m", rows="padded", threads=1)
    return repository


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.unlink()
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def emptied(repository: Path) -> None:
    shutil.rmtree(repository)
    repository.mkdir()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-models": (emptied, "."),
    "unfinished": (lambda r: (r / ".making-1-abc").mkdir(), ".making-1-abc"),
    "config-missing": (lambda r: (r / "m" / "config.pbtxt").unlink(), "m"),
    "config-unreadable": (lambda r: (r / "m" / "config.pbtxt").write_text("max_batch_size: ["), "m/config.pbtxt"),
    "name-mismatch": (lambda r: (r / "m").rename(r / "other"), "other/config.pbtxt"),
    "unknown-backend": (
        lambda r: replaced(r / "m_onnxruntime" / "config.pbtxt", '"onnxruntime"', '"abacus"'),
        "m_onnxruntime/config.pbtxt",
    ),
    "version-missing": (lambda r: shutil.rmtree(r / "m" / "1"), "m"),
    "file-missing": (lambda r: (r / "m" / "1" / "tokenizer.json").unlink(), "m/1/tokenizer.json"),
    "digest-mismatch": (lambda r: damaged(r / "m" / "1" / "model.onnx"), "m/1/model.onnx"),
    "unlisted": (lambda r: (r / "m" / "1" / "extra.py").touch(), "m/1/extra.py"),
    "dims-mismatch": (lambda r: replaced(r / "m" / "config.pbtxt", "dims: 8", "dims: 9"), "m/config.pbtxt"),
    "manifest-unreadable": (lambda r: (r / "m" / "1" / "manifest.json").write_text("{"), "m/1/manifest.json"),
    "settings-unreadable": (lambda r: (r / "m" / "1" / "serving.json").write_text("{}"), "m/1/serving.json"),
    "golden-mismatch": (lambda r: (r / "m" / "1" / "golden.json").write_text("{}"), "m/1/golden.json"),
    "batch-mismatch": (
        lambda r: replaced(r / "m" / "config.pbtxt", "max_batch_size: 4", "max_batch_size: 5"),
        "m/config.pbtxt",
    ),
    "version-gap": (
        lambda r: replaced(r / "m" / "config.pbtxt", "versions: 1", "versions: 7"),
        "m/config.pbtxt",
    ),
    "batching-unproven": (
        lambda r: (
            replaced(r / "m_onnxruntime" / "1" / "serving.json", '"padded"', '"alone"'),
            list_digests(r / "m_onnxruntime" / "1", model="m_onnxruntime", version=1),
        ),
        "m_onnxruntime/config.pbtxt",
    ),
}
# What can go wrong between the steps of an ensemble.
BAD_STEPS: dict[str, tuple[Callable[[Path], object], str]] = {
    "step-unknown": (lambda r: shutil.rmtree(r / "m_tokenizer"), "'m_tokenizer' is no model"),
    "two-writers": (
        lambda r: replaced(r / "m" / "config.pbtxt", 'value: "attention_mask"', 'value: "input_ids"'),
        "one writer of 'input_ids'",
    ),
    "step-unmapped": (
        lambda r: replaced(r / "m" / "config.pbtxt", 'key: "embedding"', 'key: "logits"'),
        "'logits', which is no output of it",
    ),
}


def test_what_was_laid_out_is_sound(tmp_path: Path) -> None:
    repository = laid_out(tmp_path)
    lay_out(ir_artifact(tmp_path / "s"), repository=repository, name="ir", rows="alone", threads=1)
    assert problems(repository) == ()
    require_sound(repository)


@pytest.mark.parametrize("code", BAD)
def test_each_problem_has_its_code_and_its_place(tmp_path: Path, code: str) -> None:
    repository = laid_out(tmp_path)
    spoil, place = BAD[code]
    spoil(repository)
    found = problems(repository)
    assert [(problem.code, problem.place.relative_to(repository).as_posix()) for problem in found] == [(code, place)]
    assert found[0].message and found[0].remedy


@pytest.mark.parametrize("code", BAD_STEPS)
def test_each_problem_of_an_ensemble_has_its_code(tmp_path: Path, code: str) -> None:
    repository = tmp_path / "repository"
    artifact = tiny_artifact(tmp_path / "s")
    lay_out(artifact, repository=repository, name="m", rows="padded", threads=1, separate=True)
    assert problems(repository) == ()
    spoil, words = BAD_STEPS[code]
    spoil(repository)
    found = [problem for problem in problems(repository) if problem.code == code]
    assert found and words in found[0].message
    assert found[0].place == repository / "m" / "config.pbtxt"


def test_a_plan_for_another_machine_is_refused_by_name(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    identity = {"runtime": "tensorrt", "version": "1.2.3", "compute_capabilities": ["8.9"], "gpu": "NVIDIA L4"}
    plan = changed(
        artifact, tmp_path / "s", format="tensorrt", backend="tensorrt", engine_options={"identity": identity}
    )
    made = lay_out(plan, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert made.models == ("m", "m_tensorrt"), "the text stage packs its own batches"
    group = read_config(tmp_path / "r" / "m" / CONFIG_FILE).instance_group
    assert group is not None and (group.count, group.kind) == (4, "KIND_CPU"), "several processes tokenise"
    assert (tmp_path / "r" / "m_tensorrt" / "1" / "model.plan").is_file()
    found = problems(tmp_path / "r")
    assert [(problem.code, problem.place) for problem in found] == [
        ("foreign-plan", tmp_path / "r" / "m_tensorrt" / "1")
    ]
    assert "1.2.3" in found[0].message


def test_another_gpus_plan_beside_the_served_one_is_no_problem(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s")
    here = machine_identity("tensorrt").model_dump(mode="json")
    for identity in ({**here, "gpu": "NVIDIA L4", "compute_capabilities": ["8.9"]}, here):
        options = {"identity": identity}
        plan = changed(artifact, tmp_path / "s", format="tensorrt", backend="tensorrt", engine_options=options)
        lay_out(plan, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    pin(tmp_path / "r", "m", 2)
    assert problems(tmp_path / "r") == ()
    pin(tmp_path / "r", "m", 1)
    assert {item.code for item in problems(tmp_path / "r")} == {"foreign-plan"}


def test_every_code_is_in_the_docs() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    assert {*BAD, *BAD_STEPS, "foreign-plan", "labels-mismatch", "prepared-damaged"} == set(REMEDIES), (
        "each code has a test"
    )
    for code in REMEDIES:
        assert f"`{code}`" in docs, code


def test_fewer_labels_than_logits_are_noticed(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "s", task="text-classification")
    few = changed(artifact, tmp_path / "s", labels=("negative",))
    lay_out(few, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    assert {problem.code for problem in problems(tmp_path / "r")} == {"labels-mismatch"}


@pytest.mark.parametrize("name", ["model.py", "text.py", "onnxruntime_engine.py", "model.onnx", "serving.json"])
def test_each_missing_file_is_named_once(tmp_path: Path, name: str) -> None:
    repository = laid_out(tmp_path)
    (repository / "m" / "1" / name).unlink()
    assert [(problem.code, problem.place.name) for problem in problems(repository)] == [("file-missing", name)]


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    repository = laid_out(tmp_path)
    damaged(repository / "m" / "1" / "model.onnx")
    shutil.rmtree(repository / "m_onnxruntime" / "1")
    with pytest.raises(RepositoryError, match="2 problem") as caught:
        require_sound(repository)
    assert [problem.code for problem in caught.value.problems] == ["digest-mismatch", "version-missing"]


def test_a_model_from_elsewhere_needs_only_to_be_servable(tmp_path: Path) -> None:
    version = tmp_path / "theirs" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(b"onnx")
    (tmp_path / "theirs" / "config.pbtxt").write_text('name: "theirs" backend: "onnxruntime"')
    assert problems(tmp_path) == ()


def test_a_manifest_of_a_later_schema_is_said_so(tmp_path: Path) -> None:
    repository = laid_out(tmp_path)
    path = repository / "m" / "1" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
    assert [problem.code for problem in problems(repository)] == ["manifest-unreadable"]
