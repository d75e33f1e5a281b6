"""Every keep-alive request waited 40 ms: the listener named no protocol, so asyncio set no TCP_NODELAY."""

from __future__ import annotations

import asyncio
import socket

from trimaran.serving.gateway.server import _listener


def test_accepted_connections_send_small_answers_at_once() -> None:
    """Nagle's algorithm would hold the body back until the head is acknowledged."""

    async def accepted_option() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with _listener("127.0.0.1", 0) as listener:
            async with await asyncio.start_server(accept, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                option = await found
                writer.close()
        return option

    assert asyncio.run(accepted_option()) != 0
