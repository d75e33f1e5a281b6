"""uvicorn's HTTP protocol with limits that it lacks: time and size of a request's head, number of connections."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimaran.serving.gateway.settings import RequestLimits, Timeouts


def guarded(limits: RequestLimits, timeouts: Timeouts) -> type[HttpToolsProtocol]:
    """The protocol class; uvicorn makes one instance for each connection."""

    class GuardedProtocol(HttpToolsProtocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._head_bytes = 0
            self._in_head = True
            self._timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= limits.connections:
                transport.abort()
            super().connection_made(transport)
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
                self._arm()
            super().data_received(data)
            if self._in_head and self._head_bytes > limits.head_bytes and not self.transport.is_closing():
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                )
                self.transport.close()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._head_bytes = 0
            self._disarm()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            # The next bytes of this connection are the head of the next request.
            self._in_head = True
            super().on_message_complete()

        def _arm(self) -> None:
            """Once for each head: sending more bytes of it does not give more time."""
            if self._timer is None:
                self._timer = self.loop.call_later(timeouts.head_s, self._give_up)

        def _disarm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                self.transport.close()

    return GuardedProtocol
