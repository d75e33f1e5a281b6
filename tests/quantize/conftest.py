from __future__ import annotations

import importlib.util

import pytest

from tests.quantize.tensorrt.engines import World


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("engines"))


@pytest.fixture
def rtx() -> None:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed: pip install 'trimaran[rtx]'")
