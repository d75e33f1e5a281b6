"""What the clients promise about a call, whoever answers: order, bounds, deadlines, and what is sent again."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest

import trimaran
from tests.serving.worlds import free_port
from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut, UsageError
from trimaran.serving.client import AsyncClient, Client, Model, failures

CONFIG = {
    "max_batch_size": 2,
    "input": [{"name": "TEXT"}],
    "output": [{"name": "EMBEDDING", "dims": ["1"]}],
    "parameters": {"task": {"string_value": "embedding"}},
}
STATISTICS = {"model_stats": [{"name": "m", "version": "2"}, {"name": "m", "version": "10"}]}


class FakeResult:
    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors

    def get_response(self) -> dict[str, str]:
        return {"model_version": "10"}

    def as_numpy(self, output: str) -> np.ndarray:
        return self._vectors


class FakeChannel:
    """Answers with the number that each text is, after a while that differs from request to request."""

    def __init__(self, *, pause_s: float = 0.02) -> None:
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self.running = self.most = self.requests = 0

    def config(self, place: object, name: str, *, within_s: float) -> Any:
        return CONFIG

    def statistics(self, place: object, *, within_s: float) -> Any:
        return STATISTICS

    def infer(self, place: object, name: str, inputs: Any, outputs: object, *, within_s: float) -> Any:
        numbers = [int(row[0]) for row in inputs["TEXT"]]
        with self._lock:
            self.running += 1
            self.requests += 1
            self.most = max(self.most, self.running)
        time.sleep(self._pause_s * (1 + numbers[0] % 3))
        with self._lock:
            self.running -= 1
        return FakeResult(np.array([[number] for number in numbers], np.float32))

    def close(self) -> None:
        pass


def fake_client(channel: FakeChannel, **options: Any) -> Client:
    client = Client("127.0.0.1:1", **options)
    client._core._channel = channel
    return client


def test_the_clients_are_exported() -> None:
    assert (trimaran.Client, trimaran.AsyncClient) == (Client, AsyncClient)
    with pytest.raises(AttributeError, match="nothing"):
        _ = trimaran.nothing  # type: ignore[attr-defined]


def test_long_lists_are_split_and_keep_their_order_with_few_requests_at_a_time() -> None:
    channel = FakeChannel()
    with fake_client(channel, concurrency=3) as client:
        found = client.embed("m", [str(number) for number in range(41)])
    assert found.ravel().tolist() == list(range(41))
    assert channel.requests == 21
    assert 1 < channel.most <= 3


def test_the_deadline_is_the_whole_calls() -> None:
    """Each request is quick enough; all of them together are not."""
    with fake_client(FakeChannel(pause_s=0.1), concurrency=1, timeout_s=0.5) as client:
        assert len(client.embed("m", ["1"])) == 1
        with pytest.raises(TimedOut, match=r"within 0\.5 s"):
            client.embed("m", [str(number) for number in range(40)])
        assert len(client.using(timeout_s=30).embed("m", [str(number) for number in range(12)])) == 12


def test_one_failure_fails_the_call_and_leaves_the_client_usable() -> None:
    class Failing(FakeChannel):
        def infer(self, place: object, name: str, inputs: Any, outputs: object, *, within_s: float) -> Any:
            if inputs["TEXT"][0][0] == b"4":
                raise RequestFailed("no")
            return super().infer(place, name, inputs, outputs, within_s=within_s)

    with fake_client(Failing()) as client:
        with pytest.raises(RequestFailed):
            client.embed("m", [str(number) for number in range(20)])
        assert client.embed("m", ["1", "2", "3"]).ravel().tolist() == [1, 2, 3]


def test_the_newest_ready_version_is_told() -> None:
    with fake_client(FakeChannel()) as client:
        assert client.versions() == {"m": 10}
        assert client.models() == ("m",)


@pytest.mark.parametrize(
    ("status", "message", "kind", "sent"),
    [
        ("StatusCode.UNAVAILABLE", "failed to connect to all addresses; last error: refused", NotReady, False),
        ("StatusCode.UNAVAILABLE", "Socket closed", NotReady, True),
        ("StatusCode.UNAVAILABLE", "Exceeds maximum queue size", Overloaded, None),
        ("503", "Request timeout expired", Overloaded, None),
        ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", TimedOut, None),
        ("400", "unexpected shape", RequestFailed, None),
    ],
)
def test_only_what_was_never_sent_is_sent_again(
    status: str, message: str, kind: type[ServerError], sent: bool | None
) -> None:
    error = failures.from_status("host:1", "grpc", status, message, timeout_s=1)
    assert type(error) is kind
    assert error.facts.get("sent") is sent
    pause_s = failures.pause_before_retry(error, 0, retries=4)
    assert (pause_s is not None) == (sent is False)
    assert failures.pause_before_retry(error, 4, retries=4) is None


class Triton(BaseHTTPRequestHandler):
    """As much of one as a list of models takes."""

    def do_GET(self) -> None:
        body = json.dumps(STATISTICS).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def models_of(kind: str, port: int, **options: Any) -> tuple[str, ...]:
    if kind == "sync":
        with Client(f"127.0.0.1:{port}", protocol="http", **options) as client:
            return client.models()

    async def asked() -> tuple[str, ...]:
        async with AsyncClient(f"127.0.0.1:{port}", protocol="http", **options) as client:
            return await client.models()

    return asyncio.run(asked())


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_server_that_comes_a_moment_later_is_found(kind: str) -> None:
    port = free_port()
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(models_of(kind, port, retries=60)))
    asking.start()
    with HTTPServer(("127.0.0.1", port), Triton) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asking.join(timeout=30)
        server.shutdown()
    assert found == [("m",)]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_nobody_there_is_said_after_the_retries(kind: str, protocol: Any) -> None:
    port = free_port()
    with pytest.raises(NotReady, match=f"No Triton answers {protocol} at 127.0.0.1:{port}") as refused:
        if kind == "sync":
            with Client(f"127.0.0.1:{port}", protocol=protocol, retries=1) as client:
                client.models()
        else:

            async def asked() -> None:
                async with AsyncClient(f"127.0.0.1:{port}", protocol=protocol, retries=1) as client:
                    await client.models()

            asyncio.run(asked())
    assert refused.value.facts["sent"] is False


@pytest.fixture
def counted() -> Iterator[tuple[int, list[int]]]:
    """A port at which every caller is hung up on once something was sent; the list counts them."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.recv(65536)
                seen.append(1)
                connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        yield listener.getsockname()[1], seen
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_may_have_been_read_is_not_sent_again(kind: str, counted: tuple[int, list[int]]) -> None:
    port, seen = counted
    known = {"m": Model.from_config("m", CONFIG)}
    with pytest.raises(NotReady) as refused:
        if kind == "sync":
            with Client(f"127.0.0.1:{port}", protocol="http", retries=5) as client:
                client._core._models = known
                client.embed("m", ["1"])
        else:

            async def asked() -> None:
                async with AsyncClient(f"127.0.0.1:{port}", protocol="http", retries=5) as client:
                    client._models = known
                    await client.embed("m", ["1"])

            asyncio.run(asked())
    assert refused.value.facts["sent"] is True
    # aiohttp itself asks once more where a connection that it kept was closed; this one was new.
    assert len(seen) == 1


def test_a_silent_server_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for kind in ("sync", "async"):
            with pytest.raises(TimedOut, match=r"within 0\.3 s"):
                models_of(kind, port, timeout_s=0.3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Client("x:1", protocol="ftp"),  # type: ignore[arg-type]
        lambda: Client("x:1", timeout_s=0),
        lambda: Client("x:1", concurrency=0),
        lambda: AsyncClient("x:1", retries=-1),
    ],
)
def test_an_impossible_client_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        make()
