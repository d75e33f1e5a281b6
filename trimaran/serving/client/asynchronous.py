"""The client for asyncio."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from trimaran.core import choices
from trimaran.serving.client import given
from trimaran.serving.client.core import ClientCore
from trimaran.serving.client.endpoint import Endpoint, endpoint_of
from trimaran.serving.client.hedging import Hedge
from trimaran.serving.client.triton_channel import TritonChannel
from trimaran.serving.client.watching import Watch, watch_of

Result = TypeVar("Result")
_CANARIES_AT_A_TIME = 256


class RequestTurns(Protocol):
    """Decides when each request of a call may be sent."""

    def split(self, parts: int) -> None:
        """The call has so many requests."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Entered before a request is sent, and left after its answer."""


class Slots:
    """At most so many requests at a time."""

    def __init__(self, concurrency: int) -> None:
        self._room = asyncio.Semaphore(concurrency)

    def split(self, parts: int) -> None:
        pass

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._room


class AsyncioDriver:
    def __init__(self, turns: RequestTurns, hedge: Hedge | None = None) -> None:
        self._turns, self._hedge = turns, hedge

    def taking(self, turns: RequestTurns) -> AsyncioDriver:
        return AsyncioDriver(turns, self._hedge)

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any:
        async with asyncio.timeout(within_s), self._turns.turn():
            return await (self._hedge.answer(send) if self._hedge else send())

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(
        self, work: Sequence[Callable[[], Coroutine[Any, Any, Result]]], *, within_s: float
    ) -> list[Result]:
        self._turns.split(len(work))
        # Each piece of work keeps the deadline itself.
        tasks = [asyncio.create_task(start()) for start in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


def _resolve(host: str, port: int) -> Any:
    return asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


class AsyncClient(ClientCore):
    """A connection to one Triton, or to several with the same models, for one event loop; an async context manager.

    `url` is host:port, or a list of them: see `Client`.

    `timeout_s` bounds a whole call with all its requests and retries, `concurrency` the requests in flight at a time.
    A list of texts gets a list of answers, one string gets one answer. A pair of texts stands in a list.
    With a `hedge`, a request that waits unusually long is sent a second time.
    Raises NotReady, Overloaded, TimedOut, RequestFailed, or UsageError for an impossible question.

    Examples:
        >>> async with trimaran.AsyncClient("127.0.0.1:8001") as client:
        ...     (await client.embed("minilm", "some text")).shape
        (384,)
    """

    def __init__(
        self,
        url: str | Sequence[str] = "",
        *,
        protocol: choices.Protocol = "grpc",
        timeout_s: float = 60.0,
        concurrency: int = 8,
        retries: int = 4,
        hedge: Hedge | None = None,
    ) -> None:
        endpoint = endpoint_of(url, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)

        def connect(endpoint: Endpoint) -> TritonChannel:
            return TritonChannel(endpoint, for_asyncio=True)

        self._watching: asyncio.Task[None] | None = None
        driver = self._waiting = AsyncioDriver(Slots(concurrency), hedge)
        if isinstance(url, str):
            super().__init__(endpoint, connect(endpoint), driver)
        else:
            watch = watch_of(endpoint, connect, AsyncioDriver(Slots(_CANARIES_AT_A_TIME)), _resolve)
            super().__init__(endpoint, None, driver, watch)

    def using(
        self,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        concurrency: int | None = None,
        turns: RequestTurns | None = None,
        priority: int | None = None,
        counts: tuple[str, ...] | None = None,
    ) -> Self:
        """The same connection with another deadline, other headers, a request id, or a concurrency of its own.

        `turns` may decide in the place of the concurrency when a request is sent. Triton serves `priority` 1 first.
        `counts` names what the model counts beside its answer: see `wire.COUNTS`.
        """
        view = super().using(timeout_s=timeout_s, headers=headers, request_id=request_id)
        if priority is not None:
            view._endpoint = replace(view._endpoint, priority=priority)
        if counts is not None:
            view._counts = counts
        if concurrency is not None:
            view._driver = self._waiting.taking(Slots(given.count("concurrency", concurrency)))
        if turns is not None:
            view._driver = self._waiting.taking(turns)
        return view

    def _start_watching(self, watch: Watch) -> None:
        self._watching = asyncio.create_task(watch.go_on())

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._close_channels()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
