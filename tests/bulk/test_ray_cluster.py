"""The nodes of a cluster decide how many actors there are; no Ray is started for it."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.bulk.ray_cluster import plan_actors
from trimaran.bulk.run import WorkerOptions
from trimaran.core.artifact import Artifact
from trimaran.core.errors import UnavailableError, UsageError


class Nodes:
    """What Ray says of its nodes."""

    def __init__(self, *resources: dict[str, float]) -> None:
        self._resources = resources

    def nodes(self) -> list[dict[str, Any]]:
        gone = {"Alive": False, "Resources": {"CPU": 99.0}}
        return [gone, *({"Alive": True, "Resources": resources} for resources in self._resources)]


def crew(nodes: Nodes, artifact: Artifact, **work: Any) -> tuple[int, int, int, int]:
    plan = plan_actors(nodes, artifact, WorkerOptions(engine="ray", **work))
    return plan.workers, plan.cores, plan.gpus, plan.lanes


def test_as_many_actors_as_fit(artifact: Artifact) -> None:
    assert crew(Nodes({"CPU": 8}, {"CPU": 16}), artifact) == (6, 4, 0, 4)
    assert crew(Nodes({"CPU": 2}, {"CPU": 16}), artifact) == (9, 2, 0, 2)
    assert crew(Nodes({"CPU": 8}), artifact, workers=1, threads=8) == (1, 8, 0, 8)
    assert crew(Nodes({"CPU": 2}), artifact, workers=50, threads=1) == (2, 1, 0, 1)


def test_an_engine_for_gpus_gets_one_each(artifact: Artifact) -> None:
    on_gpu = artifact.model_copy(update={"backend": "tensorrt"})
    assert crew(Nodes({"CPU": 8}, {"CPU": 16, "GPU": 2}), on_gpu) == (2, 4, 1, 1)
    with pytest.raises(UnavailableError, match="no node with a GPU, which tensorrt needs"):
        crew(Nodes({"CPU": 8}), on_gpu)


def test_a_worker_wider_than_every_node_is_refused(artifact: Artifact) -> None:
    with pytest.raises(UsageError, match="No node of the Ray cluster has 16 CPUs"):
        crew(Nodes({"CPU": 8}), artifact, threads=16)
