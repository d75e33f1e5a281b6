from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tiny import PROFILE, tiny_artifact
from trimaran.core.devices import CPU
from trimaran.core.errors import ChildError
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.core.tasks import gates_for
from trimaran.pipeline import proving
from trimaran.pipeline.plan import DeployRun
from trimaran.quantize.candidates import candidate


def test_where_eager_fails_it_is_said_so_and_no_candidate_is_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tiny_artifact(tmp_path)
    plan: Any = SimpleNamespace(
        candidates=(candidate("openvino-fp32"),),
        config=SimpleNamespace(candidates=(), budget=1.0, threads=1),
        calibration=(),
        gates=(),
        lane_threads=1,
        profile=PROFILE,
        device=CPU,
    )
    monkeypatch.setattr(proving, "make_candidate", lambda *arguments, **more: graph)
    run = DeployRun(plan, Store(tmp_path / "store"), SilentProgress())

    def answers() -> Any:
        raise ChildError("eager PyTorch died")

    with pytest.raises(ChildError, match="eager PyTorch died"):
        proving.make_and_prove_candidates(run, graph, answers)


@pytest.mark.parametrize(("weights_bytes", "lanes"), [(90_000_000, 2), (440_000_000, 2), (2_400_000_000, 1)])
def test_candidates_of_a_large_graph_are_made_one_after_the_other(
    tmp_path: Path, weights_bytes: int, lanes: int
) -> None:
    graph = tiny_artifact(tmp_path)
    weights = graph.files[0].model_copy(update={"name": "model.onnx", "size_bytes": weights_bytes})
    assert proving.lanes_within(9_000_000_000, graph.model_copy(update={"files": (weights,)})) == lanes
    assert proving.lanes_within(0, graph) == 1, "one is always made"


def test_a_judgement_is_not_remembered_across_a_changed_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tiny_artifact(tmp_path)
    plan: Any = SimpleNamespace(judging=("a text",), gates=gates_for("embedding", "strict", {}))

    def key() -> str:
        return proving.assess_recipe(plan, graph, threads=1, libraries=()).digest

    before = key()
    assert key() == before
    monkeypatch.setattr(proving, "METRICS_VERSION", proving.METRICS_VERSION + 1)
    assert key() != before
