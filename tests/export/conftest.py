from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.export.exported import exported_family
from trimaran.artifact import Artifact


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Artifact]:
    """Each family with each task, exported once; the model folder lies at `folder_of(artifact)`."""

    @functools.cache
    def export(family: str, task: str) -> Artifact:
        return exported_family(tmp_path_factory.mktemp(f"{family}-{task}"), family, task)

    return export
