from __future__ import annotations

import functools

import pytest

from tests.export.exported import LONG, Exports, exported_family
from trimaran.core.artifact import Artifact


@pytest.fixture(autouse=True)
def no_children(workers_here: None) -> None:
    """No test of this folder is about processes, and each child would import PyTorch again."""


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A family with a task's head, exported once for all tests; `model_folder` tells where the model lies."""

    @functools.cache
    def export(family: str, task: str) -> Artifact:
        return exported_family(tmp_path_factory.mktemp(f"{family}-{task}"), family, task, profile=LONG)

    return export
