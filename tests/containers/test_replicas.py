"""Short versions of benchmarks/replicas.py and replicas_overload.py, without rates. `make containers` runs this."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.scripts import scripts_in
from tests.containers.conftest import ROOT, pods

pytestmark = [pytest.mark.container, pytest.mark.slow]
NAMES = ("replicas", "replicas_overload", "pods", "experiment", "load", "load_calls")


@pytest.fixture(scope="module")
def scripts(images: None) -> SimpleNamespace:
    with scripts_in(ROOT / "benchmarks", NAMES) as imported:
        return imported


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Readable for user 1000, with every folder above it."""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    return tmp_path


def test_no_call_fails_or_mixes_versions_while_one_freezes_and_a_release_rolls_there_and_back(
    network: pods.Bridge, root: Path, scripts: SimpleNamespace
) -> None:
    async def rolled() -> list[tuple[float, float, str]]:
        async with scripts.replicas.three_under_load(network, root) as world:
            one = network.full("triton-0")
            await asyncio.to_thread(pods.podman, "pause", one)
            await asyncio.sleep(6)
            await asyncio.to_thread(pods.podman, "unpause", one)
            await world.all_ready()
            await asyncio.to_thread(network.kill_stubs, "triton-1")
            await asyncio.sleep(3)
            await world.all_ready()
            await world.release("both versions on each", [(1, 2)], ends_with="2")
            await world.release("back", [(1,)], ends_with="1")
            assert [(phase["mixed"], phase["switched"]) for phase in world.phases] == [(0, True)] * 2, world.phases
            return list(world.busy.calls)

    outcomes = {outcome for _, _, outcome in asyncio.run(rolled())}
    assert outcomes == {"1", "2"}, network.log("gateway")[-4000:]


def test_overload_is_refused_in_words_and_restarts_nothing(
    network: pods.Bridge, root: Path, scripts: SimpleNamespace
) -> None:
    result: dict[str, Any] = asyncio.run(
        scripts.replicas_overload.run(network, root, seconds=10.0, factor=3.0, callers=150)
    )
    timed = {"capacity kept", "sent at least 2.7 times the capacity"}
    assert all(holds for claim, holds in result["claims"].items() if claim not in timed), result
    assert {"200", "503"} & set(result["statuses"])
