"""What other users of the machine can see of a server's stubs, and what the stubs can see of us."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.worlds import shared_memory_with
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import keeper
from trimaran.serving.triton.processes import stubs_of
from trimaran.serving.triton.server import launch

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]


def test_a_link_in_shared_memory_changes_no_other_file(tmp_path: Path) -> None:
    """Another user can see the names of a server's shared memory, and put a link of such a name beside it."""
    program = tmp_path / "program"
    program.touch(0o755)
    link = keeper.SHARED_MEMORY / f"trimaran-test-{os.getpid()}-link"
    link.symlink_to(program)
    try:
        keeper.make_private(f"trimaran-test-{os.getpid()}-")
    finally:
        link.unlink()
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def test_a_link_that_comes_after_a_look_changes_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of root would have taken the rights from any file."""
    program = tmp_path / "program"
    program.touch(0o755)
    region = keeper.SHARED_MEMORY / f"trimaran-test-{os.getpid()}-region"
    region.touch(0o644)

    def swapped(mode: int) -> bool:
        region.unlink()
        region.symlink_to(program)
        return True

    monkeypatch.setattr(keeper.stat, "S_ISREG", swapped)
    try:
        keeper.make_private(region.name)
    finally:
        monkeypatch.undo()
        region.unlink()
    assert stat.S_IMODE(program.stat().st_mode) == 0o755


def test_shared_memory_is_ours_alone_and_secrets_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-key-of-ours")
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    already_there = set(shared_memory_with(f"trimaran-{os.getpid()}-"))
    with home_at(tmp_path / "home"), launch(tmp_path / "r", drain=False) as server:
        with Client(server.grpc_url) as client:
            client.embed("m", ["the cat"])
        regions = set(shared_memory_with(f"trimaran-{os.getpid()}-")) - already_there
        modes = {name: stat.S_IMODE((Path("/dev/shm") / name).stat().st_mode) for name in regions}
        assert set(modes.values()) == {0o600}, modes
        for pid in stubs_of(server.keeper_pid):
            variables = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"a-key-of-ours" not in variables and b"HOME=" in variables
