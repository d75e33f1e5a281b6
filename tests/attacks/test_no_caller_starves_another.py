"""A key with 20 callers of 2,048 texts each starved another key: the queue was first come, first served."""

from __future__ import annotations

import asyncio

import pytest

from trimaran.serving.gateway.admission import Admission, RateLimiter, Turns
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.settings import RateLimit


def test_a_light_caller_waits_for_one_part_and_not_for_all_requests_of_a_heavy_one() -> None:
    async def scenario() -> list[str]:
        admission = Admission(capacity=64, queue=512, patience_s=60)
        order: list[str] = []

        async def part(turns: Turns, caller: str) -> None:
            async with turns.turn():
                order.append(caller)
                await asyncio.sleep(0)

        async def request(caller: str, texts: int, parts: int) -> None:
            turns = Turns(admission, texts, caller)
            turns.split(parts)
            await asyncio.gather(*(part(turns, caller) for _ in range(parts)))

        heavy = [asyncio.create_task(request("heavy", 2048, 64)) for _ in range(20)]
        await asyncio.sleep(0)
        for _ in range(10):
            await request("light", 1, 1)
        served_before = len(order)
        await asyncio.gather(*heavy)
        assert (admission.in_flight, admission.waiting) == (0, 0)
        assert len(order) == 20 * 64 + 10
        return order[:served_before]

    order = asyncio.run(scenario())
    assert order.count("light") == 10
    assert order.count("heavy") < 100, "each light request waits for what is in flight, not for 1,280 parts"


def test_work_and_not_the_number_of_requests_is_shared() -> None:
    """One caller sends texts of 10, the other of 1: after a while both had the same work."""

    async def scenario() -> dict[str, int]:
        admission = Admission(capacity=10, queue=1000, patience_s=60)
        work = {"ten": 0, "one": 0}
        shares: dict[str, int] = {}

        async def request(caller: str, size: int) -> None:
            async with admission.room(size, caller):
                work[caller] += size
                if sum(work.values()) == 200:
                    shares.update(work)
                await asyncio.sleep(0)

        await asyncio.gather(*(request("ten", 10) for _ in range(100)), *(request("one", 1) for _ in range(1000 - 100)))
        return shares

    shares = asyncio.run(scenario())
    assert abs(shares["ten"] - shares["one"]) <= 20


def test_a_full_queue_refuses_the_caller_that_filled_it() -> None:
    async def scenario() -> None:
        admission = Admission(capacity=1, queue=4, patience_s=60)

        async def request(caller: str) -> str:
            async with admission.room(1, caller):
                return caller

        async with admission.room(1, "greedy"):
            greedy = [asyncio.create_task(request("greedy")) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(Refusal, match="waiting already"):
                await request("greedy")
            modest = asyncio.create_task(request("modest"))
            await asyncio.sleep(0)
            assert admission.waiting == 4
        results = await asyncio.gather(*greedy, modest, return_exceptions=True)
        assert [result for result in results if isinstance(result, str)] == ["greedy"] * 3 + ["modest"]
        assert isinstance(results[3], Refusal) and results[3].status == 503

    asyncio.run(scenario())


def test_a_rate_of_texts_counts_texts_and_lets_a_large_request_pass_once() -> None:
    time = [0.0]
    limiter = RateLimiter(RateLimit(per_s=10, burst=100), "texts", now=lambda: time[0])
    limiter.take("a", count=150)
    with pytest.raises(Refusal, match="10 texts a second") as refused:
        limiter.take("a", count=1)
    assert (refused.value.status, refused.value.retry_after_s) == (429, 5.1)
    limiter.take("b", count=100)
    time[0] = 5.1
    limiter.take("a", count=1)
