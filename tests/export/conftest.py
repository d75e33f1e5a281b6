from __future__ import annotations

import functools
import gc

import pytest

from tests.export.exported import LONG, Exports, exported_family
from trimaran.core.artifact import Artifact


@pytest.fixture(scope="session", autouse=True)
def libraries_out_of_the_collectors_sight() -> None:
    """An export collects garbage twice; in a process that holds every library, that alone would take half a second."""
    import onnxruntime  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """A family with a task's head, exported once for all tests; `model_folder` tells where the model lies."""

    @functools.cache
    def export(family: str, task: str) -> Artifact:
        return exported_family(tmp_path_factory.mktemp(f"{family}-{task}"), family, task, profile=LONG)

    return export
