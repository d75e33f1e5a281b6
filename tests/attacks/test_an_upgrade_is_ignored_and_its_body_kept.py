"""A request to change the protocol had its body read as a second request. Java's HTTP client, which asks for h2c with
every first request, got 400 on POST."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from trimaran.serving.gateway.protocol import guarded
from trimaran.serving.gateway.settings import RequestLimits, Timeouts

LIMITS = RequestLimits(head_bytes=4096)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the method, the path and the body that it was given."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    said = b"[%s %s %s]" % (scope["method"].encode(), scope["path"].encode(), body)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(said)).encode())]}
    )
    await send({"type": "http.response.body", "body": said})


def conversation(*sent: bytes, app: Any = echo) -> bytes:
    """All that a server says to these segments, until it is silent for a moment or closes."""

    async def scenario() -> bytes:
        config = uvicorn.Config(app, http=guarded(LIMITS, Timeouts()), ws="none", lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        make: Callable[[], Any] = lambda: config.http_protocol_class(config, state, {})  # type: ignore[operator]  # noqa: E731
        server = await loop.create_server(make, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        said = b""
        try:
            for segment in sent:
                writer.write(segment)
                await writer.drain()
                await asyncio.sleep(0.001)
            while part := await asyncio.wait_for(reader.read(65536), 0.3):
                said += part
        except TimeoutError:
            pass
        finally:
            writer.close()
            server.close()
        return said

    return asyncio.run(scenario())


UPGRADES = {
    "h2c as Java asks": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n",
    "websocket": b"Upgrade: websocket\r\nConnection: upgrade\r\n",
    "in capitals": b"UPGRADE: x\r\nCONNECTION: UPGRADE\r\n",
}
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


def post(headers: bytes, body: bytes) -> bytes:
    return b"POST /a HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (headers, len(body), body)


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
def test_one_request_gets_one_answer_with_its_whole_body(headers: bytes) -> None:
    said = conversation(post(headers, SMUGGLED))
    assert said.count(b"HTTP/1.1 ") == 1
    assert said.endswith(b"[POST /a %s]" % SMUGGLED)


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES)
def test_in_any_segments_and_behind_other_requests(headers: bytes) -> None:
    plain = post(b"", b"first")
    stream = plain + post(headers, b"Upgrade: me\r\n") + post(headers, SMUGGLED) + plain
    for size in (len(stream), 150, 19):
        said = conversation(*(stream[begin : begin + size] for begin in range(0, len(stream), size)))
        bodies = [answer.split(b"\r\n\r\n", 1)[1] for answer in said.split(b"HTTP/1.1 200 OK")[1:]]
        first, smuggled = b"[POST /a first]", b"[POST /a %s]" % SMUGGLED
        assert bodies == [first, b"[POST /a Upgrade: me\r\n]", smuggled, first]


def test_connect_is_refused_and_what_follows_is_not_read() -> None:
    said = conversation(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED)
    assert said.startswith(b"HTTP/1.1 405 ") and said.count(b"HTTP/1.1 ") == 1


CHUNKED = b"GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answer_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads no body, as an open page of the gateway."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


BEHIND = {
    "an upgrade with a body": b"0\r\n\r\n" + post(UPGRADES["websocket"], SMUGGLED),
    "a head above the limit": b"0\r\n\r\nGET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 5000),
    "a trailer without end": b"0\r\n" + b"A: b\r\n" * 5000,
    "a chunk without end": b"fffffff\r\n" + b"a" * 5000,
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_the_connection_ends_with_a_body_of_unknown_length(behind: bytes) -> None:
    """The parser read the heads behind it without limits, and kept every line of its trailer."""
    said = conversation(CHUNKED + behind, app=answer_at_once)
    assert said.startswith(b"HTTP/1.1 200 ") and said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in said.lower()


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_limit_of_a_head_counts_its_request_line_however_it_arrives(pieces: int) -> None:
    head = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 5000)
    size = -(-len(head) // pieces)
    said = conversation(*(head[begin : begin + size] for begin in range(0, len(head), size)))
    assert said.startswith(b"HTTP/1.1 431 ")


def test_a_caller_who_never_reads_is_dropped() -> None:
    """The answer would stay in memory for as long as the caller likes."""

    async def scenario() -> bool:
        async def large(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a" * (64 << 20)})

        config = uvicorn.Config(large, http=guarded(LIMITS, Timeouts(write_s=0.2)), ws="none", lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: config.http_protocol_class(config, state, {}),  # type: ignore[operator]
            "127.0.0.1",
            0,
        )
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(100):
            await asyncio.sleep(0.1)
            if state.total_requests and not state.connections:
                break
        writer.close()
        server.close()
        return not state.connections

    assert asyncio.run(scenario())
