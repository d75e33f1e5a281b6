"""A call that takes many requests is answered by one version of the model, also while versions are promoted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.worlds import SLOW_CONFIG, eventually
from trimaran.serving.client import AsyncClient, Client
from trimaran.serving.client.hedging import Hedge
from trimaran.serving.triton import control
from trimaran.serving.triton.server import Server, launch

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]
# Answers every text with the number of its version.
MODEL = """
from pathlib import Path
import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        version = np.array([[float(Path(__file__).parent.name)]], np.float32)
        return [triton.InferenceResponse([triton.Tensor("EMBEDDING", version)]) for _ in requests]
"""


def serve_version(model: Path, version: int) -> None:
    plain = SLOW_CONFIG.replace('"slow"', '"m"').replace("max_queue_size: 1", "max_queue_size: 1000")
    (model / "config.pbtxt").write_text(f"{plain}\nversion_policy {{ specific {{ versions: {version} }} }}\n")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    for version in (1, 2):
        (tmp_path / "m" / str(version)).mkdir(parents=True)
        (tmp_path / "m" / str(version) / "model.py").write_text(MODEL)
    serve_version(tmp_path / "m", 1)
    with launch(tmp_path, drain=False) as server:
        yield server


def test_no_large_answer_is_of_two_versions(server: Server) -> None:
    """Asked by both clients, by the one for asyncio as the gateway asks."""
    answers: dict[str, list[set[float]]] = {"blocking": [], "asyncio": []}
    done = threading.Event()

    def ask() -> None:
        with Client(server.grpc_url) as client:
            while not done.is_set():
                answers["blocking"].append(set(client.embed("m", ["text"] * 200).ravel().tolist()))

    async def ask_on_loop() -> None:
        async with AsyncClient(server.grpc_url, hedge=Hedge()) as client:
            while not done.is_set():
                answers["asyncio"].append(set((await client.embed("m", ["text"] * 200)).ravel().tolist()))

    asking = [threading.Thread(target=ask), threading.Thread(target=lambda: asyncio.run(ask_on_loop()))]
    for thread in asking:
        thread.start()
    for version in (2, 1, 2, 1):
        serve_version(server.repository / "m", version)
        control.load(server.control, "m")
        control.switched(server.control, "m", version)
        # On a busy machine, one large answer can take longer than all switches.
        assert eventually(lambda version=version: all({float(version)} in sets for sets in answers.values()))
    done.set()
    for thread in asking:
        thread.join()
    for sets in answers.values():
        assert {1.0} in sets and {2.0} in sets
        assert not [versions for versions in sets if len(versions) > 1]
