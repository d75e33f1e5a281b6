"""A home for logs and state files, and small things that the tests of serving share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.homes import home_at


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with home_at(tmp_path_factory.mktemp("home")) as folder:
        yield folder
