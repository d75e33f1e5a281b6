"""Servers that outlive their command: announced, found, drained and never mistaken for another process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.worlds import eventually, processes_with, shared_memory_with
from tests.tiny import tiny_artifact
from trimaran.core.errors import UsageError
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon
from trimaran.serving.triton.watchdog import ServerGone

pytestmark = pytest.mark.usefixtures("triton")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    lay_out(tiny_artifact(root / "s"), repository=root / "r", name="m", rows="padded", threads=1)
    return root / "r"


@pytest.fixture(autouse=True)
def stopped(home: Path) -> Iterator[None]:
    yield
    daemon.stop()


def nothing_left_of(pid: int) -> bool:
    return not processes_with(f"trimaran-{pid}-") and not shared_memory_with(f"trimaran-{pid}-")


def test_a_detached_server_answers_is_listed_and_stops(repository: Path) -> None:
    started = daemon.serve_detached(repository)
    assert daemon.running() == (started,)
    assert started.models == ("m",)
    with Client(f"127.0.0.1:{started.grpc_port}") as client:
        assert client.embed("m", ["cat"]).shape == (1, 8)
    assert daemon.stop(repository.parent / "another") == ()
    assert daemon.stop(repository) == (started,)
    assert daemon.running() == ()
    assert nothing_left_of(started.pid)


def test_a_failed_start_is_the_same_error_as_in_the_foreground(repository: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        with pytest.raises(UsageError, match="already in use"):
            daemon.serve_detached(repository, http_port=taken.getsockname()[1])
    assert daemon.running() == ()


def test_another_process_with_the_same_number_is_never_ended(repository: Path, home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as bystander:
        state = daemon.Running(
            pid=bystander.pid,
            started_ticks=1,
            repository=repository,
            http_port=1,
            grpc_port=2,
            metrics_port=3,
            log=home / "log",
            models=(),
        )
        path = home / "servers" / f"{bystander.pid}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(state.model_dump_json())
        assert daemon.stop() == ()
        assert not path.exists()
        assert bystander.poll() is None
        bystander.kill()


FOREGROUND = """
import sys
from pathlib import Path
from trimaran.serving.triton.daemon import serve_forever
serve_forever(Path(sys.argv[1]), on_ready=lambda state: print("ready", flush=True))
print("drained", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_foreground_server_drains_on_a_signal(repository: Path, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", FOREGROUND, str(repository)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout and parent.stdout.readline() == b"ready\n"
        assert [state.pid for state in daemon.running()] == [parent.pid]
        parent.send_signal(number)
        assert parent.stdout.read() == b"drained\n"
        assert parent.wait() == 0
    assert nothing_left_of(parent.pid)
    assert daemon.running() == ()


def test_a_killed_supervisor_leaves_nothing_and_is_forgotten(repository: Path) -> None:
    started = daemon.serve_detached(repository)
    os.kill(started.pid, signal.SIGKILL)
    assert eventually(lambda: nothing_left_of(started.pid))
    assert daemon.running() == ()


@pytest.mark.parametrize("meanwhile", [None, ServerGone("it ended by itself")])
def test_a_signal_in_a_tick_ends_the_server_after_the_tick(meanwhile: Exception | None) -> None:
    reached = False
    with pytest.raises(daemon._Ended), daemon._signals_as_exceptions() as signals, signals.deferred():
        signals.end(signal.SIGTERM, None)
        reached = True
        if meanwhile:
            raise meanwhile
    assert reached
