"""Admission: which requests go on now, which wait, and which are refused for now."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable

from trimaran.serving.gateway.refusals import Refusal, overloaded
from trimaran.serving.gateway.settings import RateLimit

_REMEMBERED_CALLERS = 10_000


class Admission:
    """First come, first served: at most `capacity` texts at a time and `queue` requests waiting, each `patience_s`.

    A request that is larger than the capacity takes all of it.
    """

    def __init__(self, *, capacity: int, queue: int, patience_s: float) -> None:
        self._capacity = self._free = capacity
        self._queue = queue
        self._patience_s = patience_s
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        return self._capacity - self._free

    @contextlib.asynccontextmanager
    async def room(self, texts: int) -> AsyncIterator[float]:
        """Yields the seconds that the request waited. Raises Refusal (503) for a full queue or a long wait."""
        size = min(max(1, texts), self._capacity)
        began = time.monotonic()
        await self._enter(size)
        try:
            yield time.monotonic() - began
        finally:
            self._free += size
            self._wake()

    async def _enter(self, size: int) -> None:
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        if len(self._waiting) >= self._queue:
            raise overloaded(f"{len(self._waiting)} requests are waiting already. Send again later.")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._patience_s):
                await turn
        except TimeoutError as error:
            self._leave(entry)
            raise overloaded(f"No turn came within {self._patience_s:g} s. Send again later.") from error
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        """If the turn came in the very moment of giving up, its room is given back."""
        size, turn = entry
        if turn.done() and not turn.cancelled():
            self._free += size
        else:
            with contextlib.suppress(ValueError):
                self._waiting.remove(entry)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= size
                turn.set_result(None)


class RateLimiter:
    """One token bucket for each caller. The callers not seen for longest are forgotten first."""

    def __init__(self, rate: RateLimit | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._now = now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, own: RateLimit | None = None) -> None:
        """Raises Refusal (429) with the time until the next request is allowed."""
        rate = own or self._rate
        if rate is None:
            return
        now = self._now()
        level, seen = self._buckets.pop(caller, (rate.burst, now))
        level = min(rate.burst, level + (now - seen) * rate.per_s)
        allowed = level >= 1
        self._buckets[caller] = (level - 1 if allowed else level, now)
        while len(self._buckets) > _REMEMBERED_CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Refusal(
                429,
                "rate_limited",
                f"At most {rate.per_s:g} requests a second are allowed, {rate.burst:g} at once.",
                retry_after_s=(1 - level) / rate.per_s,
            )
