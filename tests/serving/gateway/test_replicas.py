"""A gateway, and both clients, over several real Tritons: some die, stop, freeze, return or get another version."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import SLOW_CONFIG, eventually
from tests.tiny import tiny_serving, tiny_tokenizer
from trimaran.serving.client import AsyncClient, Client
from trimaran.serving.triton import control, processes
from trimaran.serving.triton.server import Server, launch

MODEL = '''
import time
import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Answers with the number of its version, after a moment."""

    def initialize(self, args):
        self.version = float(args["model_version"])

    def execute(self, requests):
        time.sleep(0.005)
        vector = np.array([[self.version]], np.float32)
        return [triton.InferenceResponse([triton.Tensor("EMBEDDING", vector)]) for _ in requests]
'''
CALLERS = 6
_TWO_LEVELS = "priority_levels: 2 default_priority_level: 2"


def lay_out(repository: Path, *served: int) -> None:
    """A model `m` with versions 1 and 2, of which these are served."""
    for version in ("1", "2"):
        folder = repository / "m" / version
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(MODEL)
            tiny_tokenizer(folder / "tokenizer.json")
            tiny_serving(folder)
    config = SLOW_CONFIG.replace('"slow"', '"m"').replace("max_queue_size: 1 ", "max_queue_size: 256 ")
    config += 'parameters { key: "task" value { string_value: "embedding" } }\n'
    config += f"version_policy {{ specific {{ versions: {list(served)} }} }}\n"
    (repository / "m" / "config.pbtxt").write_text(config)


@dataclass
class Tritons:
    """Servers by number; one that ended can be started again on its ports, over its own repository."""

    root: Path
    servers: dict[int, Server] = field(default_factory=dict)

    def repository(self, number: int) -> Path:
        return self.root / f"repository-{number}"

    def start(self, number: int) -> None:
        ports = self.servers[number].ports._asdict() if number in self.servers else {}
        options = {f"{kind}_port": port for kind, port in ports.items()}
        self.servers[number] = launch(self.repository(number), drain=True, **options)  # type: ignore[arg-type]

    @property
    def urls(self) -> list[str]:
        return [server.grpc_url for server in self.servers.values()]

    def signal(self, number: int, what: signal.Signals, *, only: str = "") -> None:
        """To the server and its stubs, or to those with a word in their command line."""
        for process in processes.descendants(self.servers[number].keeper_pid):
            with contextlib.suppress(Exception):
                if only in " ".join(process.cmdline()):
                    os.kill(process.pid, what)

    def freeze(self, number: int) -> None:
        """The server alone: it takes a stub that does not move for dead, also after both move again."""
        self.signal(number, signal.SIGSTOP, only="bin/tritonserver")

    def kill(self, number: int) -> None:
        self.signal(number, signal.SIGKILL)
        self.servers[number].close(drain=False)

    def serve(self, number: int, *versions: int) -> None:
        """Loads and unloads versions beside each other, as a promotion does."""
        lay_out(self.repository(number), *versions)
        control.load(self.servers[number].control, "m")


@pytest.fixture
def tritons(tmp_path: Path, triton: None) -> Iterator[Tritons]:
    with home_at(tmp_path / "home"):
        world = Tritons(tmp_path)
        try:
            for number in range(3):
                lay_out(world.repository(number), 1)
                world.start(number)
            yield world
        finally:
            for number, server in world.servers.items():
                world.signal(number, signal.SIGCONT)
                server.close(drain=False)


@dataclass
class Load:
    """Calls without end, and the answers. An answer is the version's number, or the reason of a failure."""

    call: Callable[[], object]
    answers: list[tuple[float, object]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        while not self.is_over.is_set():
            try:
                answer = self.call()
            except Exception as error:
                answer = repr(error)
            self.answers.append((time.monotonic(), answer))

    def since(self, moment: float) -> Counter[object]:
        return Counter(answer for at, answer in self.answers if at >= moment)

    def some_more(self, count: int = 60) -> None:
        wanted = len(self.answers) + count
        assert eventually(lambda: len(self.answers) >= wanted), self.since(0)


@contextlib.contextmanager
def load(call: Callable[[], object]) -> Iterator[Load]:
    running = Load(call)
    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        for _ in range(CALLERS):
            pool.submit(running.go_on)
        try:
            yield running
        finally:
            running.is_over.set()


def through(running: Running) -> Callable[[], object]:
    def call() -> object:
        answer = running.ask("/v1/embeddings", {"input": "dog"})
        if answer.status != 200:
            return answer.status, answer.body
        (number,) = answer.json["data"][0]["embedding"]
        assert answer.headers["x-model-version"] == f"{number:.0f}", "the header names the version that answered"
        return number

    return call


def requests_of(running: Running) -> dict[str, float]:
    """How many requests each Triton got, by its address."""
    prefix = 'trimaran_gateway_replica_requests{replica="'
    lines = [line for line in running.ask("/metrics").body.decode().splitlines() if line.startswith(prefix)]
    return {line.removeprefix(prefix).split('"')[0]: float(line.split()[-1]) for line in lines}


def get_their_share(busy: Load, running: Running, urls: list[str]) -> bool:
    before = requests_of(running)
    busy.some_more(90)
    now = requests_of(running)
    return all(now[url] - before[url] > 5 for url in urls)


@pytest.mark.slow
def test_no_call_fails_and_no_server_idles_while_tritons_die_stop_freeze_and_return(
    tritons: Tritons, tmp_path: Path
) -> None:
    urls = ",".join(tritons.urls)
    with gateway(tritons.repository(0), urls, tmp_path / "gateway") as running, load(through(running)) as busy:
        assert eventually(lambda: get_their_share(busy, running, tritons.urls))
        tritons.kill(0)
        busy.some_more()
        tritons.start(0)
        assert eventually(lambda: get_their_share(busy, running, tritons.urls)), "one that was killed returns"
        tritons.servers[1].close()
        busy.some_more()
        tritons.start(1)
        assert eventually(lambda: get_their_share(busy, running, tritons.urls)), "one that was stopped returns"
        tritons.freeze(2)
        assert eventually(lambda: get_their_share(busy, running, tritons.urls[:2]))
        tritons.signal(2, signal.SIGCONT)
        assert eventually(lambda: get_their_share(busy, running, tritons.urls)), "one that was frozen returns"
        tritons.signal(2, signal.SIGKILL, only="triton_python_backend_stub")
        busy.some_more(200)
        assert running.ask("/readyz").status == 200
    assert set(busy.since(0)) == {1.0}


@pytest.mark.slow
def test_replicas_switch_to_the_next_version_together_and_back(tritons: Tritons, tmp_path: Path) -> None:
    urls = ",".join(tritons.urls)
    shutil.copytree(tritons.repository(0), tmp_path / "seen")
    with gateway(tmp_path / "seen", urls, tmp_path / "gateway") as running, load(through(running)) as busy:
        for number in (0, 1):
            tritons.serve(number, 1, 2)
        time.sleep(2.5)
        busy.some_more()
        assert set(busy.since(0)) == {1.0}, "as long as one server lacks it, nobody gets the next version"
        tritons.serve(2, 1, 2)
        assert eventually(lambda: busy.answers[-1][1] == 2.0)
        assert eventually(lambda: b'model_version{digest="",model="m"} 2.0' in running.ask("/metrics").body)
        time.sleep(0.3)
        switched = time.monotonic()
        busy.some_more()
        tritons.serve(0, 1)
        assert eventually(lambda: busy.answers[-1][1] == 1.0), "a rollback on one server is a rollback of all"
        moments = [at for at, answer in busy.answers if at >= switched]
        order = [answer for at, answer in sorted(busy.answers) if at >= switched]
        assert moments and set(order) == {1.0, 2.0}
        for number in (0, 1, 2):
            tritons.kill(number)
            lay_out(tritons.repository(number), 2)
            tritons.start(number)
            time.sleep(2.5)
        assert eventually(lambda: busy.answers[-1][1] == 2.0), "a rolling restart ends with the next version"
    assert set(busy.since(0)) == {1.0, 2.0}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_client_of_several_tritons_needs_no_gateway(tritons: Tritons, protocol: str) -> None:
    urls = [server.grpc_url if protocol == "grpc" else server.http_url for server in tritons.servers.values()]
    with Client(urls, protocol=protocol, timeout_s=30) as client:  # type: ignore[arg-type]
        with load(lambda: float(client.embed("m", "dog")[0])) as busy:
            busy.some_more()
            tritons.kill(0)
            busy.some_more()
            tritons.freeze(1)
            time.sleep(4)
            busy.some_more()
            tritons.start(0)
            tritons.signal(1, signal.SIGCONT)
            assert eventually(lambda: all(replica.reachable for replica in client.replicas))
    assert set(busy.since(0)) == {1.0}

    async def ask_all() -> list[float]:
        async with AsyncClient(urls, protocol=protocol, timeout_s=30) as client:  # type: ignore[arg-type]
            await client.embed("m", "dog")
            tritons.freeze(1)
            vectors = await asyncio.gather(*(client.embed("m", "dog") for _ in range(40)))
            return [float(vector[0]) for vector in vectors]

    assert asyncio.run(ask_all()) == [1.0] * 40


@pytest.mark.slow
def test_overload_by_others_is_not_death(tmp_path: Path, triton: None) -> None:
    """Callers beside the gateway fill Triton's queue for longer than a canary may take."""
    repository = tmp_path / "repository"
    lay_out(repository, 1)
    config = repository / "m" / "config.pbtxt"
    config.write_text(config.read_text().replace("dynamic_batching {", "dynamic_batching { " + _TWO_LEVELS))
    slow = (repository / "m" / "1" / "model.py").read_text().replace("0.005", "0.25")
    (repository / "m" / "1" / "model.py").write_text(slow)
    with home_at(tmp_path / "home"), launch(repository, drain=False) as server:
        options = ("--canary-interval", 1, "--queue", 2, "--in-flight", 1, "--queue-timeout", 1, "--timeout", 120)
        with (
            gateway(repository, f"localhost:{server.ports.grpc}", tmp_path / "gateway", *options) as running,
            Client(server.grpc_url, concurrency=40) as others,
        ):
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                flood = [pool.submit(others.embed, "m", ["dog"] * 3) for _ in range(15)]
                asked = [pool.submit(running.ask, "/v1/embeddings", {"input": "dog"}) for _ in range(10)]
                while not all(future.done() for future in flood):
                    assert running.ask("/readyz").status == 200
                    time.sleep(0.1)
                refused = [answer for answer in (future.result() for future in asked) if answer.status != 200]
    assert {answer.status for answer in refused} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
