"""What a caller of the load does with an HTTP server's answers, as real sockets give them."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trimaran.core.errors import NotReady, RequestFailed
from trimaran.pipeline.suite.callers import gateway_caller

LASTING = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True

    def __init__(self, answer: bytes) -> None:
        self.answer, self.connections, self.requests = answer, 0, list[bytes]()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.connections += 1
        while request := self.request.recv(1 << 16):
            self.server.requests.append(request)
            for byte in range(0, len(self.server.answer), 7):
                self.request.sendall(self.server.answer[byte : byte + 7])
            if b"close" in self.server.answer or not self.server.answer.startswith(b"HTTP"):
                return


@contextmanager
def serving(answer: bytes) -> Iterator[tuple[Server, str]]:
    with Server(answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server, f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(("answer", "connections"), [(LASTING, 1), (CHUNKED, 1), (CLOSING, 3)])
def test_a_connection_lasts_as_long_as_the_server_says(answer: bytes, connections: int) -> None:
    with serving(answer) as (server, url):
        ask = gateway_caller(url, "m", "embedding", ["a text"], "secret")
        assert [ask(0) for _ in range(3)] == [b"body"] * 3
        assert server.connections == connections
        assert server.requests[0].startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
        assert b"Authorization: Bearer secret" in server.requests[0]
        assert server.requests[0].endswith(b'{"model": "m", "input": ["a text"]}')


def test_a_refusal_says_status_and_words_and_the_next_question_is_asked() -> None:
    with serving(LASTING.replace(b"200 OK", b"503 Busy")) as (server, url):
        ask = gateway_caller(url, "m", "embedding", ["a text"], "")
        for _ in range(2):
            with pytest.raises(RequestFailed, match=r"\(503\): body"):
                ask(0)
        assert server.connections == 1


@pytest.mark.parametrize(("answer", "said"), [(b"", "closed before"), (b"no http\r\n\r\n", "no HTTP")])
def test_what_is_no_answer_is_a_server_that_is_not_there(answer: bytes, said: str) -> None:
    with serving(answer) as (_, url):
        ask = gateway_caller(url, "m", "embedding", ["a text"], "")
        for _ in range(2):
            with pytest.raises(NotReady, match=said):
                ask(0)


def test_nobody_at_the_address() -> None:
    with serving(LASTING) as (_, url):
        pass
    with pytest.raises(NotReady, match="No server answers"):
        gateway_caller(url, "m", "embedding", ["a text"], "")(0)
