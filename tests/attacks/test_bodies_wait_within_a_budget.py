"""Bodies were read before admission, as many at a time as there were connections. Answers waited for slow readers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from trimaran.serving.gateway.admission import MemoryBudget
from trimaran.serving.gateway.protocol import guarded
from trimaran.serving.gateway.refusals import Refusal
from trimaran.serving.gateway.settings import RequestLimits, Timeouts


def test_bodies_beyond_the_budget_are_refused_before_they_are_read() -> None:
    budget = MemoryBudget(100)
    with budget.holding(50, "a"), budget.holding(50, "b"):
        with pytest.raises(Refusal) as refused, budget.holding(1, "c"):
            pass
        assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)
    with budget.holding(100, "c"):
        pass


def test_one_caller_takes_at_most_half_and_leaves_everything_behind() -> None:
    budget = MemoryBudget(100)
    with budget.holding(40, "greedy"):
        with pytest.raises(Refusal), budget.holding(20, "greedy"):
            pass
        with budget.holding(60, "modest"):
            pass
    assert not budget._held


def test_answers_that_wait_for_slow_readers_do_not_fill_the_memory() -> None:
    """Four kilobytes in 20 s kept an answer of any size for days, one for each connection."""
    size, callers = 12 << 20, 5

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"a" * size})

    async def scenario() -> tuple[int, list[bool]]:
        protocol = guarded(RequestLimits(answer_bytes=size), Timeouts())
        config = uvicorn.Config(large, http=protocol, ws="none", lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        server = await asyncio.get_running_loop().create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for number in range(callers):
            connections.append(await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024))
            connections[-1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(30):
                while state.total_requests <= number:
                    await asyncio.sleep(0.01)
        transports: list[Any] = [connection.transport for connection in state.connections]  # type: ignore[union-attr]
        unsent = sum(transport.get_write_buffer_size() for transport in transports)
        are_whole = [await is_whole(reader) for reader, _ in connections]
        for _, writer in connections:
            writer.close()
        server.close()
        return unsent, are_whole

    async def is_whole(reader: asyncio.StreamReader) -> bool:
        try:
            await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        return True

    unsent, are_whole = asyncio.run(scenario())
    assert unsent <= 2 * size
    assert are_whole == sorted(are_whole), "those that have waited longest are dropped"
    assert not are_whole[0] and are_whole[-1]
