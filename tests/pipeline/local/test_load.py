"""`trimaran.load`: what may be named, and what a loaded model keeps of its proof."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.serving.worlds import by_hand
from tests.tiny import tiny_artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import UsageError
from trimaran.core.serving_json import read_serving, write_serving
from trimaran.core.tasks import TASKS
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.local.tasks import MODELS

TEXTS = ["the cat sat", "dog", "good good dog ran the bad cat"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """`vectors` in two versions, of which both are the same artifact."""
    for _ in range(2):
        lay_out(
            tiny_artifact(tmp_path / "store"),
            repository=tmp_path / "repository",
            name="vectors",
            rows="equal-length",
            threads=1,
        )
    return tmp_path / "repository"


def test_every_task_has_a_model() -> None:
    assert set(MODELS) == set(TASKS)


def test_a_name_a_version_a_model_folder_and_an_artifact_are_the_same_model(repository: Path, tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "store")
    references: list[tuple[Any, dict[str, Any]]] = [
        ("vectors", {"repository": repository}),
        (repository / "vectors" / "1", {}),
        (repository / "vectors", {}),
        (artifact.directory, {"store": tmp_path / "store"}),
        (artifact.digest, {"store": tmp_path / "store"}),
    ]
    for reference, where in references:
        with trimaran.load(reference, **where) as model:
            np.testing.assert_allclose(model.encode(TEXTS), by_hand(TEXTS), atol=1e-6)


def test_the_rows_policy_is_the_proven_one(repository: Path, tmp_path: Path) -> None:
    assert trimaran.load("vectors", repository=repository).rows == "equal-length"
    assert trimaran.load(tiny_artifact(tmp_path / "store").directory, store=tmp_path / "store").rows == "alone"


def test_an_unknown_name_names_the_models_that_are_there(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="vectors"):
        trimaran.load("vektors", repository=repository, store=tmp_path / "none")


def test_a_trained_folder_is_told_to_be_deployed_first(tmp_path: Path) -> None:
    (tmp_path / "trained").mkdir()
    with pytest.raises(UsageError, match="trimaran deploy -m"):
        trimaran.load(tmp_path / "trained")


def test_threads_share_a_model(repository: Path) -> None:
    with trimaran.load("vectors", repository=repository) as model, ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(model.encode, [TEXTS] * 16):
            np.testing.assert_allclose(vectors, by_hand(TEXTS), atol=1e-6)


def test_a_pickled_model_answers_in_another_process(repository: Path) -> None:
    model = trimaran.load("vectors", repository=repository)
    model.max_seq_length = 4
    copy = pickle.loads(pickle.dumps(model))
    assert copy.max_seq_length == 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_array_equal(pool.apply(model.encode, (TEXTS,)), model.encode(TEXTS))


def test_a_closed_model_says_so(repository: Path) -> None:
    with trimaran.load("vectors", repository=repository) as model:
        pass
    model.close()
    with pytest.raises(UsageError, match="was closed"):
        model.encode("dog")


def test_texts_that_are_cut_are_counted(repository: Path) -> None:
    model = trimaran.load("vectors", repository=repository)
    model.encode(["dog", "cat " * 30, "cat " * 14])
    assert model.truncated == 1
    model.max_seq_length = 4
    np.testing.assert_array_equal(model.encode("the cat sat ran"), model.encode("the cat"))
    assert model.truncated == 2
    with pytest.raises(UsageError, match="1 to 16 tokens"):
        model.max_seq_length = 17


def test_a_method_of_another_task_is_refused_with_the_methods_there_are(repository: Path) -> None:
    model = trimaran.load("vectors", repository=repository)
    with pytest.raises(AttributeError, match="encode, encode_query"):
        model.classify("dog")


def test_an_engine_that_was_imported_without_its_variables_is_refused(repository: Path) -> None:
    import onnxruntime  # noqa: F401

    version = repository / "vectors" / "2"
    needed = {"ONEDNN_MAX_CPU_ISA": "SSE41"}
    write_serving(version, read_serving(version).model_copy(update={"execution_environment": needed}))
    list_digests(version, model="vectors", version=2)
    with pytest.raises(UsageError, match="ONEDNN_MAX_CPU_ISA=SSE41"):
        trimaran.load(version)
