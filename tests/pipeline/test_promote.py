"""Versions change under load with no failed and no mixed answer, and what is damaged never gets to serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.serving.worlds import TEXTS, by_hand, eventually
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.choices import Rows
from trimaran.core.digests import list_digests
from trimaran.core.errors import IntegrityError, QualityError, RepositoryError, UsageError
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.judging.golden import Golden, make_golden
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import list_models, model_versions, remove
from trimaran.pipeline.promote import promote, rollback
from trimaran.serving.client import Client
from trimaran.serving.triton import control, daemon

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.timeout(240)]
QUIET = SilentProgress()


def negated(artifact: Artifact, root: Path) -> Artifact:
    """The same encoder with every number of the other sign: an answer tells which version gave it."""
    import onnx
    from onnx import helper

    def make(folder: Path) -> Draft:
        model = onnx.load(str(artifact.entry_path))
        model.graph.node[-1].output[0] = "plain"
        model.graph.node.append(helper.make_node("Neg", ["plain"], ["embedding"]))
        onnx.save(model, str(folder / "model.onnx"))
        (folder / "tokenizer.json").write_bytes((artifact.directory / "tokenizer.json").read_bytes())
        return Draft.model_validate(artifact.model_dump(include=set(Draft.model_fields)))

    return Store(root).produce(Recipe(step="negated", parents=(artifact.digest,)), make)


def bundle(sign: float) -> Golden:
    vectors = {"EMBEDDING": sign * by_hand(TEXTS[:4])}
    return make_golden(
        task="embedding",
        model="tiny",
        reference="by hand",
        numbers="embedding",
        rows=[{"TEXT": text} for text in TEXTS[:4]],
        wanted=vectors,
        proven=vectors,
        gates=gates_for("embedding", "strict", {}),
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Version 1 gives the vectors worked out by hand, version 2 their negation; 3 claims the former wrongly."""
    first = tiny_artifact(tmp_path / "s")
    second = negated(first, tmp_path / "s")
    for artifact, sign in ((first, 1.0), (second, -1.0), (second, 1.0)):
        lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1, golden=bundle(sign))
    promote(tmp_path / "r", "m", 1, prove=False, progress=QUIET)
    return tmp_path / "r"


@pytest.fixture
def server(repository: Path) -> Iterator[daemon.Running]:
    yield daemon.serve_detached(repository)
    daemon.stop()


class Callers:
    """Ask without rest; every answer must be wholly of one version. Keeps the order in which versions answered."""

    def __init__(self, server: daemon.Running, count: int = 6) -> None:
        self.signs: list[int] = []
        self._asked_s: list[tuple[float, int]] = []
        self.failures: list[str] = []
        self._url, self._ended = f"127.0.0.1:{server.grpc_port}", threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def _ask(self) -> None:
        texts = list(TEXTS[:4])
        wanted = by_hand(texts)
        with Client(self._url, retries=0) as client:
            while not self._ended.is_set():
                asked_s = time.monotonic()
                try:
                    found = client.embed("m", texts)
                except Exception as error:
                    self.failures.append(str(error))
                    continue
                for sign in (1, -1):
                    if np.allclose(found, sign * wanted, atol=1e-6):
                        self.signs.append(sign)
                        self._asked_s.append((asked_s, sign))
                        break
                else:
                    self.failures.append("an answer of neither version, or of both")

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        assert eventually(lambda: len(self.signs) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def now(self, sign: int) -> bool:
        """Whether everyone who asks half a second later gets this version's answers."""
        begun_s = time.monotonic() + 0.5

        def since() -> list[int]:
            return [sign for asked_s, sign in list(self._asked_s) if asked_s > begun_s]

        assert eventually(lambda: len(since()) > 60)
        return set(since()) == {sign}


def test_a_live_server_switches_forth_and_back_with_no_failed_and_no_mixed_answer(
    repository: Path, server: daemon.Running
) -> None:
    with Callers(server) as callers:
        assert set(callers.signs) == {1}
        promoted = promote(repository, "m", 2, prove=False, progress=QUIET)
        assert (promoted.before, promoted.servers) == ((1,), (server.http_port,))
        assert callers.now(-1)
        assert rollback(repository, "m", prove=False, progress=QUIET).version == 1
        assert callers.now(1)
    assert callers.failures == []


@pytest.mark.parametrize(("rows", "joins"), [("padded", "an ensemble"), ("equal-length", "a stage that calls")])
def test_an_engine_that_is_a_model_of_its_own_switches_with_the_model_that_calls_it(
    tmp_path: Path, rows: Rows, joins: str
) -> None:
    """As on a GPU: each version of the model to call asks the same version of its engine, so none is of both."""
    first = tiny_artifact(tmp_path / "s")
    for artifact in (first, negated(first, tmp_path / "s")):
        lay_out(artifact, repository=tmp_path / "r", name="m", rows=rows, threads=1, separate=True)
    promote(tmp_path / "r", "m", 1, prove=False, progress=QUIET)
    server = daemon.serve_detached(tmp_path / "r")
    try:
        with Callers(server) as callers:
            promote(tmp_path / "r", "m", 2, prove=False, progress=QUIET)
            assert callers.now(-1)
            rollback(tmp_path / "r", "m", prove=False, progress=QUIET)
            assert callers.now(1)
        assert callers.failures == []
        loaded = {entry.name: entry.version for entry in control.index(server.control) if entry.state}
        assert {name for name in loaded if name.endswith("_onnxruntime")}, joins
    finally:
        daemon.stop()
    assert all(model.served == (1,) for model in list_models(tmp_path / "r"))


def test_a_version_that_is_damaged_drifted_or_does_not_load_is_refused_and_the_old_one_serves_on(
    repository: Path, server: daemon.Running
) -> None:
    config = (repository / "m" / "config.pbtxt").read_text()
    with Callers(server) as callers:
        with pytest.raises(QualityError, match="is not what was proven: mean_cosine_distance"):
            promote(repository, "m", 3, prove=True, progress=QUIET)
        model = repository / "m" / "2" / "model.py"
        model.write_text(model.read_text() + "\nraise RuntimeError('spoiled')\n")
        with pytest.raises(IntegrityError, match=r"damaged.*model\.py"):
            promote(repository, "m", 2, prove=False, progress=QUIET)
        list_digests(model.parent, model="m", version=2)
        with pytest.raises(RepositoryError, match=r"does not load.*spoiled.*Version 1 serves on"):
            promote(repository, "m", 2, prove=False, progress=QUIET)
        weights = repository / "m" / "2" / "model.onnx"
        data = bytearray(weights.read_bytes())
        weights.unlink()
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(IntegrityError, match=r"damaged.*model\.onnx"):
            promote(repository, "m", 2, prove=False, progress=QUIET)
        assert callers.now(1)
    assert callers.failures == []
    assert set(callers.signs) == {1}
    assert (repository / "m" / "config.pbtxt").read_text() == config


def test_a_faithful_version_is_proven_aside_first(repository: Path) -> None:
    promoted = promote(repository, "m", 2, prove=True, progress=QUIET)
    assert promoted.proven and promoted.proven["mean_cosine_distance"] < 1e-6
    facts = model_versions(repository, "m")
    assert (facts.versions, facts.served, facts.pinned, facts.previous) == ((1, 2, 3), (2,), True, 1)


def test_a_promoted_version_outlasts_the_next_deploy(repository: Path, tmp_path: Path) -> None:
    made = lay_out(tiny_artifact(tmp_path / "s"), repository=repository, name="m", rows="padded", threads=1)
    assert made.version == 4
    assert [(model.name, model.served) for model in list_models(repository)] == [("m", (1,)), ("m_onnxruntime", (1,))]


def test_only_what_is_not_served_can_be_removed(repository: Path) -> None:
    with pytest.raises(UsageError, match="is the one that is served"):
        remove(repository, "m", 1)
    assert [path.name for path in remove(repository, "m", 2)] == ["2", "2"]
    assert model_versions(repository, "m").versions == (1, 3)
    with pytest.raises(UsageError, match=r"no version 2.*There are: 1, 3"):
        remove(repository, "m", 2)
    with pytest.raises(UsageError, match="no model 'n'"):
        promote(repository, "n", 1, prove=False, progress=QUIET)


def test_without_a_promotion_there_is_no_way_back(tmp_path: Path) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    with pytest.raises(UsageError, match="nothing to go back to"):
        rollback(tmp_path / "r", "m", prove=False, progress=QUIET)
