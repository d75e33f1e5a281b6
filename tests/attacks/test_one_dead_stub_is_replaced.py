"""A killed stub is replaced, and the one that lives goes on: no request is lost. A stopped server is not waited for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.homes import home_at
from tests.serving.worlds import TEXTS, by_hand, eventually
from tests.tiny import tiny_artifact
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import SilentProgress
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.promote import promote
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon
from trimaran.serving.triton.processes import stubs_of
from trimaran.serving.triton.watchdog import WatchdogSettings

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[daemon.Running]:
    artifact = tiny_artifact(tmp_path / "s")
    for _ in range(2):
        lay_out(artifact, repository=tmp_path / "r", name="m", rows="padded", threads=1)
    with home_at(tmp_path / "home"):
        settings = WatchdogSettings(canary_s=0.5, canary_timeout_s=0.5, hang_s=3.0)
        yield daemon.serve_detached(tmp_path / "r", watchdog=settings, drain=False)
        daemon.stop()


class Callers:
    """Ask without rest, and keep what went wrong."""

    def __init__(self, running: daemon.Running) -> None:
        self.right, self.failures = 0, list[str]()
        self._url = f"127.0.0.1:{running.grpc_port}"
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(3)]

    def _ask(self) -> None:
        wanted = by_hand(TEXTS[:3])
        with Client(self._url, timeout_s=30) as client:
            while not self._ended.is_set():
                try:
                    answer = client.embed("m", TEXTS[:3])
                except TrimaranError as error:
                    self.failures.append(str(error))
                    continue
                self.right += 1
                if not np.allclose(answer, wanted, atol=1e-6):
                    self.failures.append("wrong")

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        assert eventually(lambda: self.right > 20)
        return self

    def __exit__(self, *_: object) -> None:
        before = self.right
        assert eventually(lambda: self.right > before + 20 or self.failures)
        self._ended.set()
        for thread in self._threads:
            thread.join()


def state() -> daemon.Running:
    (only,) = daemon.running()
    return only


def test_no_request_is_lost_and_the_model_can_be_promoted_afterwards(running: daemon.Running) -> None:
    first, second = sorted(stubs_of(running.pid))
    with Callers(running) as callers:
        os.kill(first, signal.SIGKILL)
        assert eventually(lambda: state().reloads == 1)
    assert callers.failures == []
    assert eventually(lambda: len(stubs_of(running.pid)) == 2)
    assert second in stubs_of(running.pid), "the one that lived was not touched"
    promote(running.repository, "m", 2, prove=False, progress=SilentProgress())
    with Client(f"127.0.0.1:{running.grpc_port}") as client:
        assert client.versions() == {"m": 2}
    assert {stub.version for stub in stubs_of(running.pid).values()} == {"2"}, "the old version holds no memory"


def test_a_stopped_server_is_ended_and_started_again(running: daemon.Running) -> None:
    (server,) = [
        process for process in psutil.Process(running.pid).children(recursive=True) if process.name() == "tritonserver"
    ]
    server.suspend()
    assert eventually(lambda: state().restarts == 1)
    assert not server.is_running()
    with Callers(running) as callers:
        pass
    assert callers.failures == []
