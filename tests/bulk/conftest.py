"""A home for the stores that land artifacts, and one tiny artifact for all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bulk.worlds import tiny
from tests.homes import home_at
from trimaran.core.artifact import Artifact
from trimaran.core.progress import SilentProgress


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with home_at(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny(tmp_path_factory.mktemp("tiny"))


class Listening(SilentProgress):
    """Calls back with what it is told."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard

    def note(self, text: str) -> None:
        self._heard(text)


@pytest.fixture
def listening() -> type[Listening]:
    return Listening


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that `filler` leaves room on for a few parts only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        (folder / "filler").write_bytes(b"x" * (shutil.disk_usage(folder).free - (48 << 10)))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
