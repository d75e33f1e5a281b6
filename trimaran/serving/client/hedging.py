"""A second copy of a request that waits unusually long. The first answer counts.

Triton needs one to two seconds to notice that the process of a model instance died with a request in it. The copy goes
to another instance, because the dead one takes nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

# Each request lowers the memory of the slowest one by this factor.
_FADING = 0.99
_TIMES_THE_SLOWEST = 2.0


class Hedge:
    """When a copy is sent. One is shared by all requests of a client.

    A copy costs work, and most of all where the server has too much of it. So the delay is a multiple of the slowest
    request of late, and there are few copies: for `share` of the requests, after a first `burst`.
    """

    def __init__(
        self,
        *,
        least_s: float = 0.4,
        share: float = 0.1,
        burst: int = 64,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._least_s, self._share, self._burst = least_s, share, burst
        self._now_s = now_s
        self._copies_left = float(burst)
        # Of the requests that were sent once.
        self._slowest_s = 0.0

    @property
    def delay_s(self) -> float:
        return max(self._least_s, _TIMES_THE_SLOWEST * self._slowest_s)

    async def answer(self, send: Callable[[], Awaitable[Any]]) -> Any:
        began_s = self._now_s()
        copies = [asyncio.ensure_future(send())]
        try:
            await asyncio.wait(copies, timeout=self.delay_s)
            if not copies[0].done() and self._copies_left >= 1:
                self._copies_left -= 1
                copies.append(asyncio.ensure_future(send()))
                return await _first_answer(copies)
            answer = await copies[0]
            self._note(self._now_s() - began_s)
            return answer
        finally:
            for copy in copies:
                copy.cancel()

    def _note(self, seconds: float) -> None:
        self._slowest_s = max(seconds, self._slowest_s * _FADING)
        self._copies_left = min(self._burst, self._copies_left + self._share)


async def _first_answer(copies: Sequence[asyncio.Future[Any]]) -> Any:
    """A copy that fails is not an answer, unless the other one fails too."""
    waiting = set(copies)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        answered = [copy for copy in done if copy.exception() is None]
        if answered or not waiting:
            return (answered or list(done))[0].result()
