"""The shadow check of live answers: a spoiled engine raises the alarm, a good one does not, a dead shadow is back."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.model_repository.worlds import changed
from tests.serving.worlds import TEXTS, by_hand, eventually, processes_with
from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.digests import damages_of
from trimaran.core.errors import UsageError
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.judging.golden import Golden, make_golden
from trimaran.judging.shadow_evidence import ShadowEvidence
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.live import statuses
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon
from trimaran.serving.triton.shadow_process import checked


def bundle() -> Golden:
    answers = {"EMBEDDING": by_hand(TEXTS)}
    return make_golden(
        task="embedding", model="tiny", reference="", numbers="embedding", rows=[{"TEXT": text} for text in TEXTS],
        wanted=answers, proven=answers, gates=gates_for("embedding", "strict", {}),
    )  # fmt: skip


def spoiled(artifact: Artifact, root: Path) -> Artifact:
    """The same model with other numbers in its table."""
    import onnx
    from onnx import numpy_helper

    def make(folder: Path) -> Draft:
        graph = onnx.load(str(artifact.entry_path))
        table = graph.graph.initializer[0]
        numbers = numpy_helper.to_array(table) + np.random.default_rng(1).standard_normal(table.dims).astype(np.float32)
        table.CopyFrom(numpy_helper.from_array(numbers.astype(np.float32), table.name))
        onnx.save(graph, str(folder / "model.onnx"))
        return artifact.derive(folder, details={})

    return Store(root).produce(Recipe(step="spoiled", parents=(artifact.digest,)), make)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    good = tiny_artifact(tmp_path / "s")
    for name, artifact in (("good", good), ("spoiled", spoiled(good, tmp_path / "s"))):
        lay_out(artifact, repository=tmp_path / "r", name=name, rows="alone", threads=1, golden=bundle(), shadow=good)
    yield tmp_path / "r"
    daemon.stop()


def seen(model: str) -> ShadowEvidence | None:
    return next((item for status in statuses() for item in status.shadowed if item.model == model), None)


def checked_answers(model: str) -> int:
    found = seen(model)
    return found.checked if found else 0


@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_a_spoiled_engine_raises_the_alarm_and_a_killed_shadow_comes_back(repository: Path, home: Path) -> None:
    started = daemon.serve_detached(repository, shadow=1.0)
    with Client(f"127.0.0.1:{started.grpc_port}") as client:

        def ask() -> bool:
            """One at a time, as the queue of a shadow that checks everything is short."""
            for model in ("good", "spoiled"):
                client.embed(model, ["the secret cat sat"])
            return checked_answers("good") >= 5 and checked_answers("spoiled") >= 5

        assert eventually(ask)
        good, spoiled_one = seen("good"), seen("spoiled")
        assert good is not None
        assert (good.moved, good.alarm) == (0, False)
        assert spoiled_one is not None
        assert spoiled_one.alarm
        assert spoiled_one.moved == spoiled_one.checked

        (shadow,) = processes_with(str(started.shadow_path))
        assert os.getpriority(os.PRIO_PROCESS, shadow) == 19
        os.kill(shadow, signal.SIGKILL)
        before = checked_answers("good")
        assert client.embed("good", ["cat"]).shape == (1, 8)
        assert eventually(lambda: ask() and checked_answers("good") > before + 5)
        assert [status.shadow_restarts for status in statuses()] == [1]
        assert eventually(lambda: "trimaran_shadow_dropped" in metrics(started.metrics_port))
    found = metrics(started.metrics_port)
    alarms = {
        line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in found.splitlines() if "shadow_alarms{" in line
    }
    assert sorted(float(value) for value in alarms.values()) == [0.0, 1.0]
    assert 'trimaran_shadow_gate{metric="tail_cosine_distance",model="good",version="1"} 0.01' in found
    assert 'trimaran_shadow_distance_bucket{le="+Inf",metric="tail_cosine_distance",model="spoiled"' in found
    daemon.stop()
    logs = "".join(path.read_text() for path in (home / "logs").glob("*.log"))
    assert "ALARM: spoiled version 1" in logs
    assert "secret" not in logs
    assert not processes_with(str(started.shadow_path))


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        return str(reply.read().decode())


def test_a_graph_that_travels_is_covered_by_the_digests_and_one_in_no_place_is_said(tmp_path: Path) -> None:
    graph = tiny_artifact(tmp_path / "s")
    winner = changed(graph, tmp_path / "s", precision="int8-static")
    for name, shadow in (("with", graph), ("without", None)):
        lay_out(winner, repository=tmp_path / "r", name=name, rows="alone", threads=1, golden=bundle(), shadow=shadow)
    nowhere = Store(tmp_path / "another")
    assert checked(tmp_path / "r" / "with" / "1", nowhere).graph.digest == graph.digest
    assert checked(tmp_path / "r" / "without" / "1", Store(tmp_path / "s")).graph.digest == graph.digest
    with pytest.raises(UsageError, match="deploy --shadow-graph"):
        checked(tmp_path / "r" / "without" / "1", nowhere)
    weights = tmp_path / "r" / "with" / "1" / "shadow" / "model.onnx"
    weights.unlink()
    weights.write_bytes(b"damaged")
    assert [damage.path for damage in damages_of(weights.parent.parent)] == [weights]
