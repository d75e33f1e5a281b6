"""Admission: which requests go on now, which wait, and which are refused for now, fairly between callers."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple, Protocol

from trimaran.serving.gateway.refusals import Refusal, overloaded
from trimaran.serving.gateway.settings import RateLimit

_REMEMBERED_CALLERS = 10_000


class _Waiting:
    """One request, or one part of a large request, that waits for its turn."""

    def __init__(self, size: int, caller: str, *, is_counted: bool) -> None:
        self.size = size
        self.caller = caller
        # Later parts of a request that has begun do not count against the queue.
        self.is_counted = is_counted
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Admission:
    """A fair queue: at most `capacity` work at a time and `queue` requests waiting, each `patience_s`.

    Work is counted in texts of ordinary length. Each caller's requests stand in order. Between callers, the next turn
    is that of the caller who has had the least work (start-time fair queueing). If the queue is full, the caller with
    the most waiting requests gives up its latest. A request that is larger than the capacity takes all of it.
    """

    def __init__(self, *, capacity: int, queue: int, patience_s: float) -> None:
        self._capacity = self._free = capacity
        self._queue = queue
        self._patience_s = patience_s
        # By start time and arrival; those that left are dropped when their turn comes.
        self._waiting: list[tuple[float, int, _Waiting]] = []
        self._arrivals = itertools.count()
        # The start time of the latest turn, and where each caller's next request begins at the earliest.
        self._now = 0.0
        self._finishes: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        return sum(entry.is_counted and not entry.turn.done() for _, _, entry in self._waiting)

    @property
    def in_flight(self) -> int:
        return self._capacity - self._free

    def resize(self, capacity: int) -> None:
        """Servers came or went. What waits still fits."""
        capacity = max(capacity, *(entry.size for _, _, entry in self._waiting), 1)
        self._free += capacity - self._capacity
        self._capacity = capacity
        self._wake()

    @contextlib.asynccontextmanager
    async def room(self, texts: int, caller: str = "", *, has_begun: bool = False) -> AsyncIterator[float]:
        """Yields the seconds that the request waited. Raises Refusal (503) for a full queue or a long wait.

        A part of a request that `has_begun` is never refused.
        """
        size = min(max(1, texts), self._capacity)
        began = time.monotonic()
        await self._enter(size, caller, has_begun=has_begun)
        try:
            yield time.monotonic() - began
        finally:
            self._free += size
            self._wake()

    async def _enter(self, size: int, caller: str = "", *, has_begun: bool = False) -> None:
        start = max(self._now, self._finishes.get(caller, 0.0))
        if not self._waiting and size <= self._free:
            self._free -= size
            self._note(caller, start, size)
            return
        if not has_begun and self.waiting >= self._queue:
            self._make_place_for(caller)
        entry = _Waiting(size, caller, is_counted=not has_begun)
        heapq.heappush(self._waiting, (start, next(self._arrivals), entry))
        self._finishes[caller] = start + size
        try:
            async with asyncio.timeout(None if has_begun else self._patience_s):
                await entry.turn
        except TimeoutError as error:
            self._leave(entry)
            raise overloaded(f"No turn came within {self._patience_s:g} s. Send again later.") from error
        except asyncio.CancelledError:
            self._leave(entry)
            raise

    def _make_place_for(self, caller: str) -> None:
        """Refuses the latest request of the caller with the most of them, unless that is this caller."""
        counts = Counter(entry.caller for _, _, entry in self._waiting if entry.is_counted and not entry.turn.done())
        greediest, most = counts.most_common(1)[0] if counts else (caller, 0)
        refusal = overloaded(f"{sum(counts.values())} requests are waiting already. Send again later.")
        if most <= counts[caller] + 1:
            raise refusal
        latest = max(
            (arrival, entry)
            for _, arrival, entry in self._waiting
            if entry.caller == greediest and entry.is_counted and not entry.turn.done()
        )[1]
        latest.turn.set_exception(refusal)

    def _leave(self, entry: _Waiting) -> None:
        """If the turn came in the very moment of giving up, its room is given back."""
        if entry.turn.done() and not entry.turn.cancelled() and entry.turn.exception() is None:
            self._free += entry.size
        else:
            entry.turn.cancel()
            if entry.caller in self._finishes:
                self._finishes[entry.caller] -= entry.size
        self._wake()

    def _wake(self) -> None:
        while self._waiting and (self._waiting[0][2].turn.done() or self._waiting[0][2].size <= self._free):
            start, _, entry = heapq.heappop(self._waiting)
            if not entry.turn.done():
                self._free -= entry.size
                self._note(entry.caller, start, 0)
                entry.turn.set_result(None)

    def _note(self, caller: str, start: float, size: int) -> None:
        """Work begins. Callers whose work is past are forgotten: they are even with the newcomers."""
        self._now = max(self._now, start)
        if size:
            self._finishes[caller] = start + size
        if len(self._finishes) > _REMEMBERED_CALLERS:
            self._finishes = {name: finish for name, finish in self._finishes.items() if finish > self._now}


class Turns:
    """The turns of one request's parts, for a client that asks for one before it sends each of them."""

    def __init__(self, admission: Admission, work: int, caller: str) -> None:
        self._admission = admission
        self._work = work
        self._caller = caller
        self._parts = 1
        self._has_begun = False
        # The wait for the first turn.
        self.waited_s = 0.0

    def split(self, parts: int) -> None:
        self._parts = parts

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        is_first, self._has_begun = not self._has_begun, True
        size = -(-self._work // self._parts)
        async with self._admission.room(size, self._caller, has_begun=not is_first) as waited_s:
            if is_first:
                self.waited_s = waited_s
            yield


class MemoryBudget:
    """The bytes that bodies may take at a time, one caller's at most half of them.

    A body is counted by its announced size, before it is read.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size = size_bytes
        self._held: Counter[str] = Counter()

    @contextlib.contextmanager
    def holding(self, size_bytes: int, caller: str = "") -> Iterator[None]:
        """Raises Refusal (503)."""
        own = self._held[caller]
        if self._held.total() + size_bytes > self._size or (own and own + size_bytes > self._size // 2):
            raise overloaded("Other bodies take all the memory there is for them. Send again later.")
        self._held[caller] += size_bytes
        try:
            yield
        finally:
            self._held[caller] -= size_bytes
            if not self._held[caller]:
                del self._held[caller]


class TokenBucket(NamedTuple):
    """What is left of a caller's rate."""

    level: float
    # A moment of time.monotonic().
    seen: float


class Buckets(Protocol):
    """The buckets of all callers."""

    def change(self, caller: str, step: Callable[[TokenBucket | None], TokenBucket]) -> None:
        """Put the bucket that `step` makes of the caller's last one; None for a caller that is not known."""


class OwnBuckets:
    """Those of one process. The callers not seen for longest are forgotten first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def change(self, caller: str, step: Callable[[TokenBucket | None], TokenBucket]) -> None:
        self._buckets[caller] = step(self._buckets.pop(caller, None))
        while len(self._buckets) > _REMEMBERED_CALLERS:
            self._buckets.popitem(last=False)


class RateLimiter:
    """One token bucket for each caller. `what` is counted: requests or texts."""

    def __init__(
        self,
        rate: RateLimit | None,
        what: str = "requests",
        *,
        buckets: Buckets | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._what = what
        self._now = now
        self._buckets = buckets or OwnBuckets()

    def take(self, caller: str, own: RateLimit | None = None, *, count: int = 1) -> None:
        """Raises Refusal (429) with the time until the next request is allowed.

        A count above the burst needs a full bucket, and leaves a debt.
        """
        rate = own or self._rate
        if rate is None:
            return
        now = self._now()
        needed = min(count, rate.burst)
        level, allowed = rate.burst, True

        def step(bucket: TokenBucket | None) -> TokenBucket:
            nonlocal level, allowed
            if bucket is not None:
                level = min(rate.burst, bucket.level + (now - bucket.seen) * rate.per_s)
            allowed = level >= needed
            return TokenBucket(level - count if allowed else level, now)

        self._buckets.change(f"{self._what} {caller}", step)
        if not allowed:
            raise Refusal(
                429,
                "rate_limited",
                f"At most {rate.per_s:g} {self._what} a second are allowed, {rate.burst:g} at once.",
                retry_after_s=(needed - level) / rate.per_s,
            )
