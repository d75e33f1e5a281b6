"""A home for logs and state files, and small things that the tests of serving share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.triton.every_task import every_task
from trimaran.core.artifact import Artifact
from trimaran.model_repository.check import problems
from trimaran.serving.triton.server import Server, launch


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with home_at(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture(scope="session")
def every_task_world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Artifact]]:
    """A repository with a model for each task, and what it was made from. Tests that write into it take a copy."""
    return every_task(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="session")
def every_task_server(
    tmp_path_factory: pytest.TempPathFactory, triton: None, every_task_world: tuple[Path, dict[str, Artifact]]
) -> Iterator[Server]:
    """One Triton over that repository: starting a stub for each of its models takes most of the time."""
    repository, _ = every_task_world
    assert problems(repository) == ()
    with home_at(tmp_path_factory.mktemp("tasks-home")):
        with launch(repository, drain=False) as running:
            yield running
