"""Fixtures that several tests of bulk runs share: a home for stores, one tiny artifact, and finished runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bulk.worlds import run, sentences, tiny, written
from tests.homes import home_at
from trimaran.bulk.readers import InputColumns
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


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """The texts of `whole`."""
    return sentences(1000, seed=5)


@pytest.fixture(scope="session")
def whole(artifact: Artifact, texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten parts made without any trouble."""
    folder = tmp_path_factory.mktemp("whole")
    run(artifact, [written(folder / "a.txt", texts)], folder / "out")
    return folder / "out"


@pytest.fixture
def faiss_on_one_thread() -> Iterator[None]:
    """Threads that wait for one another by spinning make small trainings slow on a busy machine."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(before)


@pytest.fixture(scope="session")
def finished(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of few rows, with words for ids."""
    folder = tmp_path_factory.mktemp("finished")
    lines = [json.dumps({"text": text, "id": f"t{i}"}) for i, text in enumerate(sentences(150, seed=2))]
    written(folder / "a.jsonl", lines)
    run(artifact, [folder / "a.jsonl"], folder / "out", columns=InputColumns(id="id"))
    return folder / "out"
