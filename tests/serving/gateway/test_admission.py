"""Who goes on, who waits and who is sent away: in order, within bounds, and with nothing lost on the way."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from trimaran.serving.gateway.admission import Admission, RateLimiter
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.settings import RateLimit


def test_turns_come_in_the_order_of_asking() -> None:
    async def scenario() -> list[int]:
        admission = Admission(capacity=2, queue=10, patience_s=10)
        order: list[int] = []

        async def caller(number: int, size: int) -> None:
            async with admission.room(size):
                order.append(number)
                await asyncio.sleep(0)

        # The second wants all the room: the third, who would fit beside the first, does not overtake it.
        await asyncio.gather(*(caller(number, size) for number, size in enumerate([1, 2, 1, 1, 2])))
        assert (admission.in_flight, admission.waiting) == (0, 0)
        return order

    assert asyncio.run(scenario()) == [0, 1, 2, 3, 4]


def test_a_request_larger_than_the_room_takes_all_of_it() -> None:
    async def scenario() -> None:
        admission = Admission(capacity=4, queue=1, patience_s=10)
        async with admission.room(1000):
            assert admission.in_flight == 4

    asyncio.run(scenario())


def test_a_full_queue_and_a_long_wait_are_refused_with_a_time_to_come_back() -> None:
    async def scenario() -> None:
        admission = Admission(capacity=1, queue=1, patience_s=0.05)
        async with admission.room(1):
            waiting = asyncio.create_task(admission._enter(1))
            await asyncio.sleep(0)
            with pytest.raises(Refusal, match="waiting already") as full:
                async with admission.room(1):
                    pass
            with pytest.raises(Refusal, match="No turn") as late:
                await waiting
            for refusal in (full.value, late.value):
                assert (refusal.status, refusal.retry_after_s) == (503, 1.0)
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_no_room_is_lost_whoever_leaves_whenever(seed: int) -> None:
    """Callers that give up, time out, fail and are cancelled in every order leave all the room behind."""

    async def scenario() -> None:
        chance = random.Random(seed)
        admission = Admission(capacity=5, queue=30, patience_s=0.01)
        most = 0

        async def caller() -> None:
            nonlocal most
            with contextlib.suppress(Refusal, ValueError):
                async with admission.room(chance.randint(1, 8)):
                    most = max(most, admission.in_flight)
                    await asyncio.sleep(chance.random() * 0.01)
                    if chance.random() < 0.2:
                        raise ValueError

        callers = [asyncio.create_task(caller()) for _ in range(60)]
        for one in callers:
            await asyncio.sleep(chance.random() * 0.001)
            if chance.random() < 0.3:
                one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert (admission.in_flight, admission.waiting) == (0, 0)
        assert 0 < most <= 5

    asyncio.run(scenario())


def test_a_bucket_empties_refills_and_is_each_callers_own() -> None:
    time = [0.0]
    limiter = RateLimiter(RateLimit(per_s=2, burst=3), now=lambda: time[0])
    for _ in range(3):
        limiter.take("a")
    with pytest.raises(Refusal) as refused:
        limiter.take("a")
    assert (refused.value.status, refused.value.retry_after_s) == (429, 0.5)
    limiter.take("b")
    time[0] = 0.5
    limiter.take("a")
    with pytest.raises(Refusal):
        limiter.take("a")


def test_a_keys_own_rate_comes_before_the_gateways() -> None:
    limiter = RateLimiter(None, now=lambda: 0.0)
    limiter.take("a")
    limiter.take("a", RateLimit(per_s=1, burst=1))
    with pytest.raises(Refusal):
        limiter.take("a", RateLimit(per_s=1, burst=1))
    limiter.take("a")
