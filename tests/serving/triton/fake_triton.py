"""A Triton of a few canned answers over HTTP, for what asks one without needing a model."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trimaran.serving.triton.control import Address


class FakeTriton:
    """`answers` are status and body by path; a list of them is given one after the other, and the last one stays."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.address = Address("127.0.0.1", port)
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, Any]] = []

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append((path, body))
        answer = self.answers.get(path, (404, {"error": "unknown"}))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer


@contextlib.contextmanager
def fake_triton() -> Iterator[FakeTriton]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            status, body = fake.answer(self.path, json.loads(self.rfile.read(size)) if size else None)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        fake = FakeTriton(server.server_address[1])
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield fake
        finally:
            server.shutdown()
