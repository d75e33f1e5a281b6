"""When a request is sent a second time, with a server of futures and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trimaran.serving.client.hedging import Hedge


class Copies:
    """What was sent; the test answers each copy."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[str]] = []

    def send(self) -> asyncio.Future[str]:
        self.sent.append(asyncio.get_running_loop().create_future())
        return self.sent[-1]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.sent) < count:
                await asyncio.sleep(0.001)


Test = Callable[[Copies, Hedge], Coroutine[Any, Any, None]]


def played(test: Test, **options: Any) -> None:
    async def play() -> None:
        await test(Copies(), Hedge(least_s=0.01, **options))

    asyncio.run(play())


@pytest.mark.parametrize("quicker", [0, 1])
def test_the_first_answer_counts_and_the_other_copy_is_cancelled(quicker: int) -> None:
    async def test(copies: Copies, hedge: Hedge) -> None:
        asked = asyncio.create_task(hedge.answer(copies.send))
        await copies.until(2)
        copies.sent[quicker].set_result("here")
        assert await asked == "here"
        assert copies.sent[1 - quicker].cancelled()

    played(test)


def test_a_copy_that_fails_waits_for_the_other_and_the_last_failure_is_told() -> None:
    async def test(copies: Copies, hedge: Hedge) -> None:
        for end, wanted in (("answer", "here"), ("failure", "second")):
            asked = asyncio.create_task(hedge.answer(copies.send))
            await copies.until(2)
            copies.sent[0].set_exception(ConnectionError("first"))
            await asyncio.sleep(0.005)
            assert not asked.done()
            if end == "answer":
                copies.sent[1].set_result("here")
                assert await asked == wanted
            else:
                copies.sent[1].set_exception(ConnectionError("second"))
                with pytest.raises(ConnectionError, match=wanted):
                    await asked
            copies.sent.clear()

    played(test)


def test_what_is_answered_or_fails_in_time_is_sent_once() -> None:
    async def test(copies: Copies, hedge: Hedge) -> None:
        async def refuse() -> str:
            copies.send()
            raise ConnectionError("refused")

        with pytest.raises(ConnectionError, match="refused"):
            await hedge.answer(refuse)
        assert len(copies.sent) == 1

    played(test)


def test_copies_are_few_and_grow_again_with_the_answers() -> None:
    async def test(copies: Copies, hedge: Hedge) -> None:
        asked = [asyncio.create_task(hedge.answer(copies.send)) for _ in range(5)]
        await copies.until(7)
        await asyncio.sleep(0.03)
        assert len(copies.sent) == 5 + 2, "a burst of two"
        for future in copies.sent:
            future.set_result("here")
        await asyncio.gather(*asked)
        # Three requests were answered without a copy: half a copy each.
        asked = [asyncio.create_task(hedge.answer(copies.send)) for _ in range(5)]
        await copies.until(7 + 5 + 1)
        await asyncio.sleep(0.1)
        assert len(copies.sent) == 7 + 5 + 1
        for task in asked:
            task.cancel()

    played(test, burst=2, share=0.5)


def test_a_server_that_is_slow_for_all_gets_no_copies() -> None:
    moments = iter([0.0, 3.0])
    hedge = Hedge(least_s=0.4, now_s=lambda: next(moments))

    async def answered() -> str:
        return "here"

    assert hedge.delay_s == 0.4
    assert asyncio.run(hedge.answer(answered)) == "here"
    assert hedge.delay_s == 6.0
