"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from trimaran.core.choices import Protocol
from trimaran.serving.client import given
from trimaran.serving.client.core import ClientCore
from trimaran.serving.client.endpoint import endpoint_of
from trimaran.serving.client.triton_channel import TritonChannel

Result = TypeVar("Result")


class AsyncioDriver:
    def __init__(self, concurrency: int) -> None:
        self._room = asyncio.Semaphore(concurrency)

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any:
        async with asyncio.timeout(within_s), self._room:
            return await send()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def together(
        self, work: Sequence[Callable[[], Coroutine[Any, Any, Result]]], *, within_s: float
    ) -> list[Result]:
        # Each piece of work keeps the deadline itself.
        tasks = [asyncio.create_task(start()) for start in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()


class AsyncClient(ClientCore):
    """A connection to one Triton, for one event loop; an async context manager.

    `timeout_s` bounds a whole call with all its requests and retries, `concurrency` the requests in flight at a time.
    A list of texts gets a list of answers, one string gets one answer. A pair of texts stands in a list.
    Raises NotReady, Overloaded, TimedOut, RequestFailed, or UsageError for an impossible question.
    """

    def __init__(
        self,
        url: str = "",
        *,
        protocol: Protocol = "grpc",
        timeout_s: float = 60.0,
        concurrency: int = 8,
        retries: int = 4,
    ) -> None:
        endpoint = endpoint_of(url, protocol, timeout_s=timeout_s, concurrency=concurrency, retries=retries)
        super().__init__(endpoint, TritonChannel(endpoint, for_asyncio=True), AsyncioDriver(concurrency))

    def using(
        self,
        *,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        concurrency: int | None = None,
    ) -> Self:
        """The same connection with another deadline, other headers, a request id or a concurrency of its own."""
        view = super().using(timeout_s=timeout_s, headers=headers, request_id=request_id)
        if concurrency is not None:
            view._driver = AsyncioDriver(given.count("concurrency", concurrency))
        return view

    async def close(self) -> None:
        closing = self._channel.close()
        if closing is not None:
            await closing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
