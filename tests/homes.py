"""A home of trimaran's own for the time of some tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.core.store import HOME_VARIABLE


@contextlib.contextmanager
def home_at(folder: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(folder))
        yield folder
