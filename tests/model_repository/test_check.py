"""One tiny bad repository for each code of the check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.model_repository.worlds import changed, ir_artifact
from tests.tiny import tiny_artifact
from trimaran.errors import RepositoryError
from trimaran.model_repository.check import problems, require_sound
from trimaran.model_repository.layout import lay_out


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
    "dims-mismatch": (lambda r: replaced(r / "m" / "config.pbtxt", "dims: 8", "dims: 9"), "m/config.pbtxt"),
    "manifest-unreadable": (lambda r: (r / "m" / "1" / "manifest.json").write_text("{"), "m/1/manifest.json"),
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
