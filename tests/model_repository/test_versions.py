"""Versions of a model in its repository, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_artifact
from trimaran.core.config_pbtxt import read_config, write_config
from trimaran.core.errors import UsageError
from trimaran.core.repository import models_in
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import (
    add_beside,
    forget_last,
    list_models,
    model_versions,
    models_beside,
    pin,
    remember,
    remove,
    restore,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two versions of `m`; `m_other` is a model of its own, which callers ask with text."""
    artifact = tiny_artifact(tmp_path / "s")
    for name in ("m", "m", "m_other"):
        lay_out(artifact, repository=tmp_path / "r", name=name, rows="padded", threads=1)
    return tmp_path / "r"


def served(repository: Path) -> dict[str, tuple[int, ...]]:
    return {model.name: model.served for model in models_in(repository)}


def test_the_first_is_served_until_another_is_pinned(repository: Path) -> None:
    before = served(repository)
    assert before == {"m": (1,), "m_onnxruntime": (1,), "m_other": (1,), "m_other_onnxruntime": (1,)}
    texts = pin(repository, "m", 2)
    assert served(repository) == {**before, "m": (2,), "m_onnxruntime": (2,)}
    assert [(model.name, model.pinned) for model in list_models(repository)][:2] == [
        ("m", True),
        ("m_onnxruntime", True),
    ]
    restore(texts)
    assert served(repository) == before and model_versions(repository, "m").pinned


def test_a_repository_of_before_keeps_what_it_serves_when_a_version_comes(repository: Path, tmp_path: Path) -> None:
    for model in ("m", "m_onnxruntime"):
        path = repository / model / "config.pbtxt"
        write_config(path, read_config(path).model_copy(update={"served_versions": ()}))
    assert model_versions(repository, "m").served == (2,), "the newest"
    lay_out(tiny_artifact(tmp_path / "s"), repository=repository, name="m", rows="padded", threads=1)
    assert (model_versions(repository, "m").versions, served(repository)["m"]) == ((1, 2, 3), (2,))


def test_stages_serve_both_versions_during_a_switch(repository: Path) -> None:
    assert models_beside(repository, "m", 1) == ("m_onnxruntime",)
    texts = add_beside(repository, "m", 2)
    assert (served(repository)["m"], served(repository)["m_onnxruntime"]) == ((1,), (1, 2))
    assert [path.parent.name for path in texts] == ["m_onnxruntime"]


def test_the_history_tells_what_was_served_before(repository: Path) -> None:
    assert model_versions(repository, "m").previous is None
    remember(repository, "m", (2,), 1)
    assert model_versions(repository, "m").previous == 2
    remember(repository, "m", (1,), 2)
    assert model_versions(repository, "m").previous == 1
    forget_last(repository, "m")
    assert model_versions(repository, "m").previous == 2
    (repository / "m" / "promotions.json").write_text("{")
    assert model_versions(repository, "m").previous is None, "a damaged history is none"


def test_a_version_is_removed_with_its_stages_and_a_served_one_stays(repository: Path) -> None:
    assert remove(repository, "m", 2) == (repository / "m_onnxruntime" / "2", repository / "m" / "2")
    assert model_versions(repository, "m").versions == (1,)
    assert model_versions(repository, "m_other_onnxruntime").versions == (1,), "a stage of another model"
    assert sorted(path.name for path in repository.iterdir() if path.name.startswith(".")) == []
    with pytest.raises(UsageError, match="is the one that is served"):
        remove(repository, "m", 1)


def test_an_unknown_model_or_version_is_named_with_those_there_are(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"no model 'x'.*There are: m, m_onnxruntime"):
        model_versions(repository, "x")
    with pytest.raises(UsageError, match=r"no version 9.*There are: 1, 2\."):
        pin(repository, "m", 9)
