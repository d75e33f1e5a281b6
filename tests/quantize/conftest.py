from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture
def rtx() -> None:
    if importlib.util.find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt_rtx is not installed: pip install 'trimaran[rtx]'")
