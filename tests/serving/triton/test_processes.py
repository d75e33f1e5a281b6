from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.serving.worlds import eventually
from trimaran.serving.triton.processes import STUB, Stub, kill_other_versions, living_instances, stubs_of


@contextlib.contextmanager
def stub(*arguments: str) -> Iterator[int]:
    """A process with a stub's command line, which waits for input."""
    process = subprocess.Popen([f"/opt/{STUB}", *arguments], executable=sys.executable, stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_stub_is_known_by_its_models_folder_and_its_instances_name(tmp_path: Path) -> None:
    model = tmp_path / "m" / "3" / "model.py"
    model.parent.mkdir(parents=True)
    model.write_text("input()\n", encoding="utf-8")
    with stub(str(model), "region", "1", "1", "7", "/opt", "0", "m_0_0", "DEFAULT") as pid:
        assert stubs_of(os.getpid())[pid] == Stub("m", "3")
        assert living_instances(os.getpid(), "m") == {"m_0_0"}
        assert living_instances(os.getpid(), "other") == set()
        kill_other_versions(os.getpid(), "m", 3)
        assert pid in stubs_of(os.getpid())
        kill_other_versions(os.getpid(), "m", 4)
        assert eventually(lambda: pid not in stubs_of(os.getpid()))


def test_a_stub_that_is_only_asked_for_its_version_serves_nothing() -> None:
    with stub() as pid:
        assert pid not in stubs_of(os.getpid())
