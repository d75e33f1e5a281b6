"""The listening socket: what every accepted connection inherits from it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from trimaran.core.errors import UsageError
from trimaran.serving.gateway.server import _listener
from trimaran.serving.gateway.settings import GatewaySettings


def settings_at(port: int) -> GatewaySettings:
    return GatewaySettings(repository=Path(), triton_url="127.0.0.1:1", port=port)


def test_accepted_connections_send_small_answers_at_once() -> None:
    """Nagle's algorithm would hold the body back until the head is acknowledged."""

    async def accepted_option() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with _listener(settings_at(0)) as listener:
            async with await asyncio.start_server(accept, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                option = await found
                writer.close()
        return option

    assert asyncio.run(accepted_option()) != 0


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with _listener(settings_at(0)) as taken:
        with pytest.raises(UsageError, match="cannot be listened on") as refused:
            _listener(settings_at(taken.getsockname()[1]))
    assert "--port" in str(refused.value.hint)
