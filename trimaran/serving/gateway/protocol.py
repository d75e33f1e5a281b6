"""uvicorn's HTTP protocol with what it lacks: whole heads, limits of time and size, slow readers, no upgrades."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trimaran.serving.gateway.settings import RequestLimits, Timeouts

_END_OF_HEAD = b"\r\n\r\n"
_UPGRADE = re.compile(rb"(?<=\r\n)upgrade(?=[ \t]*:)", re.I)
# A reader makes progress if it takes at least this much in `write_s`.
_SLOWEST_READ_BYTES = 4096


class UnreadAnswers:
    """The connections whose answers wait to be read. If they take too much memory, the one that waits longest ends."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        # In the order in which they began to wait.
        self._transports: dict[asyncio.Transport, None] = {}

    def add(self, transport: asyncio.Transport) -> None:
        self._transports.setdefault(transport)
        sizes = {waiting: waiting.get_write_buffer_size() for waiting in self._transports}
        total = sum(sizes.values())
        for waiting, size in sizes.items():
            if total <= self._most_bytes or waiting is transport:
                return
            waiting.abort()
            self.remove(waiting)
            total -= size

    def remove(self, transport: asyncio.Transport) -> None:
        self._transports.pop(transport, None)


def guarded(limits: RequestLimits, timeouts: Timeouts) -> type[HttpToolsProtocol]:
    """The protocol class; uvicorn makes one instance for each connection.

    The parser gets a head only when all of it is there, and then exactly the body that the head announces. So the limit
    holds for every head, its request line included. The parser stops reading at a request to change the protocol, and
    would take the body of that request for the next one: such requests are not shown to it.

    A body of unknown length is never read, and the connection ends with the answer. The parser would find the end of
    such a body by itself: it would keep every line of its trailer, and read the heads behind it without these limits.
    """

    # A caller that reads slowly, but not too slowly, would keep its answers in memory for hours.
    unread = UnreadAnswers(2 * limits.answer_bytes)

    class GuardedProtocol(HttpToolsProtocol):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            # The part of a head that has arrived.
            self._head = b""
            self._body_left = 0
            # Whether the last head announced a body of unknown length.
            self._is_last = False
            self._timer: asyncio.TimerHandle | None = None
            self._write_timer: asyncio.TimerHandle | None = None
            self._unsent_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= limits.connections:
                transport.abort()
            super().connection_made(transport)
            self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            self._stop_watching_reader()
            unread.remove(self.transport)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            while data and not self._is_last and not self.transport.is_closing():
                if self._body_left:
                    size = min(self._body_left, len(data))
                    self._body_left -= size
                    super().data_received(data[:size])
                    data = data[size:]
                    continue
                # Empty lines before a request are allowed.
                self._head = (self._head + data).lstrip(b"\r\n")
                end = self._head.find(_END_OF_HEAD)
                size = end + len(_END_OF_HEAD) if end >= 0 else len(self._head)
                if size > limits.head_bytes:
                    self._refuse(b"431 Request Header Fields Too Large")
                elif self._head and not self._head[:1].isalpha():
                    self._refuse(b"400 Bad Request")
                elif end < 0:
                    self._arm()
                    return
                else:
                    head, data, self._head = self._head[:size], self._head[size:], b""
                    self._take(head)

        def _take(self, head: bytes) -> None:
            self._disarm()
            if head.startswith(b"CONNECT "):
                self._refuse(b"405 Method Not Allowed")
                return
            # A name of the same length that nobody reads.
            super().data_received(_UPGRADE.sub(b"ignored", head))

        def on_headers_complete(self) -> None:
            headers = dict(self.headers)
            self._body_left = int(headers.get(b"content-length", b"0"))
            self._is_last = b"transfer-encoding" in headers
            super().on_headers_complete()
            if self._is_last:
                self.cycle.keep_alive = False

        def _refuse(self, status: bytes) -> None:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

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
            self._watch_reader()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_reader()
            unread.add(self.transport)

        def resume_writing(self) -> None:
            self._stop_watching_reader()
            unread.remove(self.transport)
            super().resume_writing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._watch_reader()

        def _watch_reader(self) -> None:
            """An answer that nobody reads stays in memory, and a closed connection waits until it is read."""
            if self._write_timer is None:
                self._unsent_bytes = self.transport.get_write_buffer_size()
                self._write_timer = self.loop.call_later(timeouts.write_s, self._drop_reader_without_progress)

        def _stop_watching_reader(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _drop_reader_without_progress(self) -> None:
            self._write_timer = None
            left = self.transport.get_write_buffer_size()
            if not left:
                return
            if left > self._unsent_bytes - _SLOWEST_READ_BYTES:
                self.transport.abort()
            else:
                self._watch_reader()

    return GuardedProtocol
