"""What a client waits and sends through, and what it counts over all its calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

from trimaran.serving.client.endpoint import Endpoint
from trimaran.serving.client.question import NamedTensors

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Channel(Protocol):
    """Sends one request. What it returns is given to the driver, so it may be an awaitable."""

    def infer(
        self, endpoint: Endpoint, name: str, inputs: NamedTensors, outputs: Sequence[str], *, within_s: float
    ) -> Any: ...
    def config(self, endpoint: Endpoint, name: str, *, within_s: float) -> Any: ...
    def statistics(self, endpoint: Endpoint, *, within_s: float) -> Any: ...
    def close(self) -> Any: ...


class ClientDriver(Protocol):
    """The three ways of waiting. `result` and `together` raise TimeoutError after `within_s`."""

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any: ...
    async def pause(self, seconds: float) -> None: ...
    async def together(
        self, work: Sequence[Callable[[], Coroutine[Any, Any, Result]]], *, within_s: float
    ) -> list[Result]: ...


def total(parts: Sequence[NamedTensors], count: str) -> int:
    """What the model counted over the parts of a call. -1 if it does not count this."""
    return sum(int(part[count].sum()) for part in parts) if parts and count in parts[0] else -1


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine whose driver blocks."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(Result, stop.value)
    coroutine.close()
    raise AssertionError("a driver that blocks never suspends")


class TruncatedTexts:
    """How many texts the server cut, over all calls of a client."""

    def __init__(self) -> None:
        self.count = 0
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def note(self, name: str, texts: int) -> None:
        """Warns once for each model; the count goes on."""
        if not texts:
            return
        with self._lock:
            self.count += texts
            known = name in self._warned
            self._warned.add(name)
        if not known:
            _log.warning("Model %s read only a part of texts that are longer than it reads: %d so far.", name, texts)
