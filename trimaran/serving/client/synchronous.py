"""The client for ordinary code."""

from __future__ import annotations

import concurrent.futures
import copy
import functools
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from trimaran.core.choices import Protocol
from trimaran.serving.client.core import ClientCore
from trimaran.serving.client.driver import Channel, run
from trimaran.serving.client.endpoint import Endpoint, endpoint_of
from trimaran.serving.client.http_channel import HttpChannel
from trimaran.serving.client.question import Answer, Ask, Model
from trimaran.serving.client.replicas import Replica
from trimaran.serving.client.triton_channel import TritonChannel
from trimaran.serving.client.watching import Watch, watch_of

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_CANARIES_AT_A_TIME = 16


class ThreadDriver:
    """Blocks the thread that waits. Several requests of one call run in threads of a pool."""

    def __init__(self, concurrency: int) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(concurrency, thread_name_prefix="trimaran-client")

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any:
        return send()

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def together(
        self, work: Sequence[Callable[[], Coroutine[Any, Any, Result]]], *, within_s: float
    ) -> list[Result]:
        end = time.monotonic() + within_s
        futures = [self._pool.submit(lambda start=start: run(start())) for start in work]  # type: ignore[misc]
        try:
            return [future.result(timeout=max(0.0, end - time.monotonic())) for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _blocking(
    method: Callable[Concatenate[ClientCore, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Client, Arguments], Result]:
    """A method of the core, with the same signature and documentation, that returns the result itself."""

    @functools.wraps(method)
    def blocking(client: Client, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return run(method(client._core, *args, **kwargs))

    return blocking


class _WatchingCore(ClientCore):
    def _start_watching(self, watch: Watch) -> None:
        threading.Thread(target=lambda: run(watch.go_on()), name="trimaran-watch", daemon=True).start()


def _resolve(host: str, port: int) -> Any:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Client:
    """A connection to one Triton, or to several with the same models, for any number of threads; a context manager.

    `url` is host:port. In a list of them, names are looked up again and again, and each address is a replica. A call
    goes to the one with the least outstanding work, and is repeated elsewhere if that fails. All answer with the same
    version of a model.

    `timeout_s` bounds a whole call with all its requests and retries, `concurrency` the requests in flight at a time.
    A list of texts gets a list of answers, one string gets one answer. A pair of texts stands in a list.
    Raises NotReady, Overloaded, TimedOut, RequestFailed, or UsageError for an impossible question.

    Examples:
        >>> with trimaran.Client("127.0.0.1:8001") as client:
        ...     client.embed("minilm", ["one text", "another"]).shape
        (2, 384)
    """

    def __init__(
        self,
        url: str | Sequence[str] = "",
        *,
        protocol: Protocol = "grpc",
        timeout_s: float = 60.0,
        concurrency: int = 4,
        retries: int = 4,
    ) -> None:
        endpoint = endpoint_of(url, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)

        def connect(endpoint: Endpoint) -> Channel:
            return TritonChannel(endpoint, for_asyncio=False) if protocol == "grpc" else HttpChannel(endpoint)

        self._driver = ThreadDriver(concurrency)
        self._watching_driver = ThreadDriver(_CANARIES_AT_A_TIME)
        if isinstance(url, str):
            self._core = ClientCore(endpoint, connect(endpoint), self._driver)
        else:
            watch = watch_of(endpoint, connect, self._watching_driver, _resolve)
            self._core = _WatchingCore(endpoint, None, self._driver, watch)
        self.url = endpoint.address

    @property
    def truncated_texts(self) -> int:
        """How many texts were cut since this client was made, because they were longer than a model reads."""
        return self._core.truncated_texts

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The servers behind this client, as they were last seen; none if it was given one address as a string."""
        return self._core.replicas

    def using(
        self, *, timeout_s: float | None = None, headers: Mapping[str, str] | None = None, request_id: str | None = None
    ) -> Self:
        """The same connection with another deadline, other headers or a request id."""
        view = copy.copy(self)
        view._core = self._core.using(timeout_s=timeout_s, headers=headers, request_id=request_id)
        return view

    embed = _blocking(ClientCore.embed)
    classify = _blocking(ClientCore.classify)
    entities = _blocking(ClientCore.entities)
    answer = _blocking(ClientCore.answer)
    fill = _blocking(ClientCore.fill)
    rerank = _blocking(ClientCore.rerank)
    choose = _blocking(ClientCore.choose)
    follows = _blocking(ClientCore.follows)
    tokens = _blocking(ClientCore.tokens)
    score = _blocking(ClientCore.score)
    sparse = _blocking(ClientCore.sparse)
    hybrid = _blocking(ClientCore.hybrid)
    query = _blocking(ClientCore.query)
    models = _blocking(ClientCore.models)
    versions = _blocking(ClientCore.versions)
    model = _blocking(ClientCore.model)

    def ask(self, name: str, build: Callable[[Model], Ask[Answer]]) -> Answer:
        """Requests of your own, with this client's deadline, retries and concurrency."""
        return run(self._core.ask(name, build))

    def close(self) -> None:
        """End the connection. A request that is still in flight fails."""
        self._driver.close()
        run(self._core._close_channels())
        self._watching_driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
