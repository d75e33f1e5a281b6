"""Encoding, indexing and searching as a user does it: from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.bulk.worlds import sentences, table, tiny, vectors, written
from tests.commands import COMMAND, environment, trimaran, trimaran_here, trimaran_json, trimaran_json_here
from tests.serving.worlds import by_hand
from trimaran.core.artifact import Artifact
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.store import Store
from trimaran.judging.judgement import Quality
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import pin
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.serving.triton import installation


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return sentences(300, seed=3)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """A store, a repository with the model `titles`, and texts."""
    root = tmp_path_factory.mktemp("world")
    artifact = tiny(root / "home")  # the store of this home
    lay_out(artifact, repository=root / "model_repository", name="titles", rows="equal-length", threads=1)
    written(root / "texts" / "a.txt", texts[:200])
    written(root / "texts" / "b.txt", texts[200:])
    return root


@pytest.fixture(scope="module")
def encoded(world: Path) -> Path:
    printed = trimaran_json_here(
        "encode", "titles", "--input", "texts/*.txt", "--output", "vectors", "--part-rows", 128,
        home=world / "home", cwd=world,
    )  # fmt: skip
    assert (printed["rows_written"], printed["engine"], len(printed["parts"])) == (300, "local", 3)
    assert printed["settings"]["how"]["rows"] == "equal-length"
    return world / "vectors"


def test_a_deployed_name_encodes_a_glob_in_order(encoded: Path, texts: list[str]) -> None:
    assert table(encoded).column("row").to_pylist() == list(range(300))
    np.testing.assert_allclose(vectors(encoded), by_hand(texts), atol=1e-6)


def test_the_summary_says_what_was_done_and_what_was_rejected(world: Path, tmp_path: Path) -> None:
    written(tmp_path / "a.txt", ["the cat", "", "dog"])
    done = trimaran_here(
        "encode", "titles", "--input", tmp_path / "a.txt", "-o", tmp_path / "out", home=world / "home", cwd=world
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 3 rows in 1 parts" in done.stdout
    assert "1 rejected: empty" in done.stdout
    assert "rows equal-length, as titles version 1 is served" in done.stderr
    assert "rows/s" in done.stderr
    again = trimaran_here(
        "encode", "titles", "--input", tmp_path / "a.txt", "-o", tmp_path / "out", home=world / "home", cwd=world
    )
    assert again.returncode == 2
    assert "is not empty. Continue the run in it with --resume" in again.stderr


def test_stdin_is_a_stream_of_texts(world: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "encode", "titles", "--input", "-", "--output", str(tmp_path / "out"), "--json"]
    done = subprocess.run(
        command, env=environment(world / "home"), cwd=world, input=b"the cat\ndog\n", capture_output=True, check=True
    )
    assert json.loads(done.stdout)["rows_written"] == 2
    np.testing.assert_allclose(vectors(tmp_path / "out"), by_hand(["the cat", "dog"]), atol=1e-6)


def test_an_index_is_built_and_searched_by_name(world: Path, encoded: Path, texts: list[str]) -> None:
    built = trimaran_here("index", "build", encoded, "-o", "titles.faiss", home=world / "home", cwd=world)
    assert built.returncode == 0, built.stderr
    assert "few enough" in built.stdout
    assert "recall@10 1.0000 against exact search on 200 vectors" in built.stdout
    printed = trimaran_json_here(
        "index", "search", "titles.faiss", "titles", texts[250], "-k", 2, home=world / "home", cwd=world
    )
    (answer,) = printed["answers"]
    best = [hit["id"] for hit in answer["hits"]]
    assert len(best) == 2
    assert any(texts[place] == texts[250] for place in best) or best[0] == 250
    assert [hit["text"] for hit in answer["hits"]] == [texts[place] for place in best]


def test_a_search_prints_the_texts_while_the_input_is_as_it_was(world: Path, tmp_path: Path) -> None:
    home, path = world / "home", written(tmp_path / "a.txt", ["the cat sat", "", "dog ran"])
    trimaran_json_here("encode", "titles", "--input", path, "-o", tmp_path / "vectors", home=home, cwd=world)
    trimaran_json_here("index", "build", tmp_path / "vectors", "-o", tmp_path / "a.faiss", home=home, cwd=world)
    search = ("index", "search", tmp_path / "a.faiss", "titles", "dog ran", "-k", 1)
    assert trimaran_here(*search, home=home, cwd=world).stdout == "1.0000\t2\tdog ran\n"
    path.write_text("something else")
    later = trimaran_here(*search, home=home, cwd=world)
    assert later.stdout == "1.0000\t2\n"
    assert f"{path} has changed since it was encoded" in later.stderr


def test_a_search_with_another_artifact_says_so(world: Path, encoded: Path) -> None:
    trimaran_json_here("index", "build", encoded, "-o", "mine.faiss", home=world / "home", cwd=world)
    other = tiny(world / "home", backend="openvino")
    done = trimaran_here(
        "index", "search", "mine.faiss", other.directory, "dog", "-k", 1, home=world / "home", cwd=world
    )
    assert done.returncode == 0, done.stderr
    assert f"is {other.digest[:12]}: scores may not mean the same" in done.stderr


def test_names_that_nobody_knows_are_refused_with_those_that_are(world: Path) -> None:
    done = trimaran_here("encode", "nothing", "--input", "texts", "-o", "x", home=world / "home", cwd=world)
    assert done.returncode == 2
    assert "is called 'nothing'. Models: titles" in done.stderr


def test_an_artifact_no_longer_in_the_store_is_brought_back_from_the_repository(world: Path, tmp_path: Path) -> None:
    brought_back = find_artifact("titles", store=Store(tmp_path / "store"), repository=world / "model_repository")
    assert brought_back.rows == "equal-length"
    assert brought_back.artifact.directory.parent == tmp_path / "store"
    assert Store(tmp_path / "store").find(brought_back.artifact.recipe) is not None
    shutil.rmtree(tmp_path / "store")


def test_a_promoted_version_is_the_one_that_encodes(tmp_path: Path) -> None:
    store, repository = Store(tmp_path / "store"), tmp_path / "repository"
    first, second = tiny(tmp_path), tiny(tmp_path, backend="openvino")
    for version, rows in ((first, "padded"), (second, "alone")):
        lay_out(version, repository=repository, name="titles", rows=rows, threads=1)  # type: ignore[arg-type]
    assert find_artifact("titles", store=store, repository=repository).artifact.digest == first.digest
    pin(repository, "titles", 2)
    pinned = find_artifact("titles", store=store, repository=repository)
    assert (pinned.artifact.digest, pinned.rows) == (second.digest, "alone")
    assert pinned.why == "as titles version 2 is served"


def test_an_artifact_runs_as_its_certificate_says(artifact: Artifact, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert find_artifact(str(artifact.directory), store=store, repository=tmp_path).rows == "alone"
    quality = Quality(
        artifact=artifact.digest, task="embedding", metrics={}, rows="padded", changes={"padded": 0.0}, neighbours=3,
        checks=(), n=1, n_batched=1, texts="", peak_memory_bytes=0, metrics_version=METRICS_VERSION,
    )  # fmt: skip
    (store.root / "records").mkdir(parents=True)
    outdated = quality.model_copy(update={"metrics_version": METRICS_VERSION - 1})
    (store.root / "records" / "assess-1.json").write_text(outdated.model_dump_json())
    assert find_artifact(str(artifact.directory), store=store, repository=tmp_path).rows == "alone"
    (store.root / "records" / "assess-1.json").write_text(quality.model_dump_json())
    assert find_artifact(str(artifact.directory), store=store, repository=tmp_path).rows == "padded"
    careful = quality.model_copy(update={"rows": "equal-length"})
    (store.root / "records" / "assess-2.json").write_text(careful.model_dump_json())
    assert find_artifact(str(artifact.directory), store=store, repository=tmp_path).rows == "equal-length"


def test_an_address_wants_the_ray_engine(world: Path) -> None:
    done = trimaran_here(
        "encode", "titles", "--input", "texts", "-o", "x", "--address", "auto", home=world / "home", cwd=world
    )
    assert done.returncode == 2
    assert "--address is for --engine ray" in done.stderr


@pytest.fixture
def served(world: Path) -> Iterator[str]:
    if reason := installation.why_not():
        pytest.skip(reason)
    home = world / "home"
    printed = trimaran_json("serve", "model_repository", "--free-ports", "--detach", home=home, cwd=world)
    try:
        yield f"127.0.0.1:{printed['grpc_port']}"
    finally:
        trimaran("stop", "model_repository", home=home, cwd=world)


@pytest.mark.slow
def test_a_served_model_searches_like_its_artifact(world: Path, encoded: Path, served: str) -> None:
    trimaran_json_here("index", "build", encoded, "-o", "served.faiss", home=world / "home", cwd=world)
    search = ["index", "search", "served.faiss", "titles", "the good dog", "-k", 5]
    by_artifact = trimaran_json_here(*search, home=world / "home", cwd=world)
    done = trimaran_here(*search, "--url", served, "--json", home=world / "home", cwd=world)
    assert "may not mean the same" not in done.stderr
    by_server = json.loads(done.stdout)
    mine, theirs = (printed["answers"][0]["hits"] for printed in (by_artifact, by_server))
    assert [round(hit["score"], 4) for hit in mine] == [round(hit["score"], 4) for hit in theirs]
