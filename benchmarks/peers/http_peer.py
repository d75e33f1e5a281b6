"""A peer that is a server: started by its own command, asked over HTTP on the loopback as OpenAI's API is."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimaran.core.isolation import die_with_parent

READY_S = 120.0
MODEL = "minilm"


class HttpPeer:
    """`command` is given the port. `POST /v1/embeddings` answers, `GET /health` says when it can."""

    def __init__(self, command: Callable[[int], list[str]], *, cwd: Path, environment: dict[str, str]) -> None:
        self._port = _free_port()
        self._server = subprocess.Popen(
            command(self._port),
            env={**os.environ, **environment},
            cwd=cwd,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (this process has no other threads yet)
        )
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        end_s = time.monotonic() + READY_S
        while not self._ready():
            if self._server.poll() is not None or time.monotonic() > end_s:
                self.close()
                raise RuntimeError(f"It was not ready within {READY_S:g} s, exit code {self._server.poll()}.")
            time.sleep(0.1)

    def encode(self, texts: list[str]) -> Any:
        import numpy as np

        body = json.dumps({"model": MODEL, "input": texts})
        try:
            status, said = self._post(body)
        except (ConnectionError, http.client.RemoteDisconnected):
            # The server closes a connection that was idle for a while, as it is between two turns.
            self._connection.close()
            status, said = self._post(body)
        if status != http.client.OK:
            raise RuntimeError(f"It answered {status}: {said[:200]!r}")
        return np.array([row["embedding"] for row in json.loads(said)["data"]], np.float32)

    def place(self) -> dict[str, str]:
        """Where load may be put on it."""
        return {"kind": "gateway", "wire": "http", "url": f"127.0.0.1:{self._port}", "model": MODEL}

    def pids(self) -> list[int]:
        return [self._server.pid]

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self._server.pid}/status").read_text(encoding="utf-8")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024

    def close(self) -> None:
        self._server.send_signal(signal.SIGTERM)
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _post(self, body: str) -> tuple[int, bytes]:
        self._connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _ready(self) -> bool:
        for path in ("/health", "/v1/health"):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
                connection.request("GET", path)
                if connection.getresponse().status == http.client.OK:
                    return True
            except OSError:
                return False
        return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
