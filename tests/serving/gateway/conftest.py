"""One Triton over tiny models of known answers, and one gateway before it, for all tests of the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import tiny_repository
from trimaran.core.artifact import Artifact
from trimaran.serving.triton.server import Server, launch


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, triton: None) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("triton")
    with home_at(folder / "home"):
        with launch(tiny_repository(folder), drain=False) as running:
            yield running


@pytest.fixture(scope="package")
def running(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("gateway")
    with gateway(server.repository, server.grpc_url, folder) as started:
        yield started


@dataclass(frozen=True)
class Tasks:
    """A model for each task, named as the task: what it was made from, its Triton and a gateway before it."""

    artifacts: dict[str, Artifact]
    server: Server
    gateway: Running


@pytest.fixture(scope="package")
def tasks(
    tmp_path_factory: pytest.TempPathFactory,
    every_task_server: Server,
    every_task_world: tuple[Path, dict[str, Artifact]],
) -> Iterator[Tasks]:
    repository, artifacts = every_task_world
    with gateway(repository, every_task_server.grpc_url, tmp_path_factory.mktemp("tasks-gateway")) as started:
        yield Tasks(artifacts, every_task_server, started)
