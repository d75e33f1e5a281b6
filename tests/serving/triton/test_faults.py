"""What breaks under load is mended by the watchdog, and no answer is ever wrong."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.serving.worlds import by_hand, eventually
from tests.tiny import tiny_artifact
from trimaran.core.errors import TrimaranError
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import control, daemon, processes
from trimaran.serving.triton.watchdog import WatchdogSettings

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("triton"), pytest.mark.timeout(240)]
TEXTS = ["the cat sat", "bad dog"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    lay_out(tiny_artifact(root / "s"), repository=root / "r", name="m", rows="padded", threads=1)
    return root / "r"


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., daemon.Running]]:
    yield daemon.serve_detached
    for state in daemon.running():
        # Triton waits its whole exit timeout for the remains of a stub that was killed; there is nobody to drain for.
        os.kill(state.pid, signal.SIGTERM)
        os.kill(triton_of(state), signal.SIGKILL)
    daemon.stop()


class Load:
    """Callers who never rest; counts what they get and remembers wrong answers and when right ones came."""

    def __init__(self, running: daemon.Running, callers: int = 6, *, retries: int = 0) -> None:
        self.outcomes: Counter[str] = Counter()
        self.wrong = 0
        self.said: set[str] = set()
        self.right_s = 0.0
        self._ended = threading.Event()
        self._url = f"127.0.0.1:{running.grpc_port}"
        self._retries = retries
        self._threads = [threading.Thread(target=self._ask) for _ in range(callers)]

    def _ask(self) -> None:
        wanted = by_hand(TEXTS)
        with Client(self._url, retries=self._retries, timeout_s=30) as client:
            while not self._ended.is_set():
                try:
                    found = client.embed("m", TEXTS)
                except TrimaranError as error:
                    self.outcomes[type(error).__name__] += 1
                    self.said.add(str(error))
                    time.sleep(0.02)
                    continue
                self.outcomes["right"] += 1
                self.right_s = time.monotonic()
                self.wrong += not np.allclose(found, wanted, atol=1e-6)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        assert eventually(lambda: self.outcomes["right"] > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def right_again(self) -> bool:
        begun = time.monotonic()
        return eventually(lambda: self.right_s > begun + 0.2)


def state_of(running: daemon.Running) -> daemon.Running:
    return next(state for state in daemon.running() if state.pid == running.pid)


def stub_of(running: daemon.Running) -> int:
    """One of the model's stubs."""
    return min(processes.stubs_of(running.pid))


def triton_of(running: daemon.Running) -> int:
    family = psutil.Process(running.pid).children(recursive=True)
    (found,) = [process.pid for process in family if process.name() == "tritonserver"]
    return found


def test_a_lone_caller_is_answered_by_one_stage_and_the_spare_rests(
    repository: Path, serve: Callable[..., daemon.Running]
) -> None:
    """Otherwise the two would take turns, each with its own copy of the weights to bring into the CPU's cache."""
    running = serve(repository)
    stubs = [psutil.Process(pid) for pid in processes.stubs_of(running.pid)]

    def woken() -> list[int]:
        return [stub.num_ctx_switches().voluntary for stub in stubs]

    with Client(f"127.0.0.1:{running.grpc_port}") as client:
        before = woken()
        for _ in range(300):
            client.embed("m", TEXTS[:1])
    rested, worked = sorted(after - earlier for earlier, after in zip(before, woken(), strict=True))
    assert rested < worked / 4


def test_a_killed_stub_is_replaced_under_load(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    running = serve(repository)
    with Load(running) as load:
        for reloads in (1, 2):
            os.kill(stub_of(running), signal.SIGKILL)
            assert eventually(lambda reloads=reloads: state_of(running).reloads == reloads)
            assert load.right_again()
    assert load.wrong == 0
    assert state_of(running).restarts == 0


@pytest.mark.parametrize("hung", [1, 2])
def test_hung_stubs_are_replaced(repository: Path, serve: Callable[..., daemon.Running], hung: int) -> None:
    """Where one of two hangs, the other goes on answering, the canaries too."""
    running = serve(repository, watchdog=WatchdogSettings(canary_s=0.2, canary_timeout_s=0.5, hang_s=4.0))
    stubs = sorted(processes.stubs_of(running.pid))
    assert len(stubs) == 2
    with Load(running) as load:
        for stub in stubs[:hung]:
            os.kill(stub, signal.SIGSTOP)
        assert eventually(lambda: state_of(running).reloads == 1)
        assert load.right_again()
    assert load.wrong == 0
    assert not set(stubs[:hung]) & set(processes.stubs_of(running.pid))


def test_a_stub_that_hangs_before_anybody_asks_is_replaced(
    repository: Path, serve: Callable[..., daemon.Running]
) -> None:
    running = serve(repository, watchdog=WatchdogSettings(canary_s=0.2, canary_timeout_s=0.5, hang_s=4.0))
    os.kill(stub_of(running), signal.SIGSTOP)
    assert eventually(lambda: state_of(running).reloads == 1)
    with Load(running) as load:
        pass
    assert load.wrong == 0


def test_a_killed_server_is_started_again_on_its_ports(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    running = serve(repository)
    with Load(running) as load:
        os.kill(triton_of(running), signal.SIGKILL)
        assert eventually(lambda: state_of(running).restarts == 1)
        assert load.right_again()
    assert load.wrong == 0
    assert state_of(running).grpc_port == running.grpc_port


def test_what_somebody_unloads_stays_unloaded_and_comes_back_when_loaded(
    repository: Path, serve: Callable[..., daemon.Running]
) -> None:
    running = serve(repository, watchdog=WatchdogSettings(canary_s=0.1))
    address = running.control
    control.unload(address, "m")
    time.sleep(1.0)
    assert "READY" not in [entry.state for entry in control.index(address) if entry.name == "m"]
    control.load(address, "m")
    with Load(running) as load:
        pass
    assert load.wrong == 0
    assert state_of(running).reloads == 0


def test_a_model_that_cannot_be_loaded_again_is_tried_until_it_can(
    tmp_path: Path, serve: Callable[..., daemon.Running]
) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    running = serve(tmp_path / "r", watchdog=WatchdogSettings(canary_s=0.2))
    settings = tmp_path / "r" / "m" / "1" / "serving.json"
    text = settings.read_text()
    with Load(running) as load:
        settings.write_text("{")
        os.kill(stub_of(running), signal.SIGKILL)
        assert eventually(lambda: load.outcomes["NotReady"] > 50)
        settings.write_text(text)
        assert eventually(lambda: state_of(running).reloads == 1)
        assert load.right_again()
    assert load.wrong == 0


def test_a_busy_model_is_left_alone(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    running = serve(repository, watchdog=WatchdogSettings(canary_s=0.1, canary_timeout_s=0.05, hang_s=1.0))
    with Load(running, callers=12) as load:
        time.sleep(3)
    assert set(load.outcomes) == {"right"}
    assert (state_of(running).reloads, state_of(running).restarts) == (0, 0)


def test_a_server_beyond_its_memory_is_started_again(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    running = serve(repository, watchdog=WatchdogSettings(canary_s=0.2, memory_limit_bytes=1 << 20))
    assert eventually(lambda: state_of(running).restarts >= 1)


def test_a_server_keeps_to_its_cpus(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    running = serve(repository, cpus=1)
    for pid in (triton_of(running), stub_of(running)):
        assert len(os.sched_getaffinity(pid)) == 1


def test_a_full_disk_for_the_log_ends_no_answer(
    repository: Path, small_disk: Path, serve: Callable[..., daemon.Running]
) -> None:
    running = serve(repository, log_file=small_disk / "triton.log")
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(b"x" * (100 << 10))
    with Load(running) as load:
        os.kill(stub_of(running), signal.SIGKILL)
        assert eventually(lambda: state_of(running).reloads == 1)
        assert load.right_again()
    assert load.wrong == 0


def test_a_thousand_silent_connections_and_callers_who_leave_disturb_nobody(
    repository: Path, serve: Callable[..., daemon.Running]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    running = serve(repository)
    with contextlib.ExitStack() as held:
        for port in (running.http_port, running.grpc_port) * 500:
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        with Load(running) as load:
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", running.http_port), timeout=10) as leaving:
                    leaving.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{")
            assert load.right_again()
    assert load.wrong == 0
    assert set(load.outcomes) == {"right"}, load.said
    assert (state_of(running).reloads, state_of(running).restarts) == (0, 0)


def test_sigterm_answers_what_is_in_flight(repository: Path, serve: Callable[..., daemon.Running]) -> None:
    """Callers who were being answered get their answer; those who come later are refused, and no answer is wrong."""
    running = serve(repository)
    with Load(running) as load:
        os.kill(running.pid, signal.SIGTERM)
        assert eventually(lambda: not daemon.running())
    assert load.wrong == 0
    assert set(load.outcomes) <= {"right", "NotReady"}, load.said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
