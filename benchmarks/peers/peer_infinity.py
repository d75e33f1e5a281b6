"""infinity-emb as the server that it is: started by its own command, asked over HTTP on the loopback."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trimaran.isolation import die_with_parent

READY_S = 120.0


def prepare(model: Path, work: Path, *, texts: list[str], engine: str) -> None:
    """Nothing: it reads the model's own folder."""


class Peer:
    def __init__(self, model: Path, work: Path, *, threads: int, engine: str) -> None:
        self._port = _free_port()
        command = [str(Path(sys.executable).with_name("infinity_emb")), "v2", "--model-id", str(model)]
        options = ["--engine", engine, "--device", "cpu", "--host", "127.0.0.1", "--port", str(self._port)]
        plain = ["--served-model-name", "minilm", "--no-compile", "--no-bettertransformer", "--log-level", "error"]
        telemetry_off = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
        # It keeps a cache in the folder that it is started from.
        self._server = subprocess.Popen(
            [*command, *options, *plain],
            env={**os.environ, **telemetry_off},
            cwd=work,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (this process has no other threads yet)
        )
        self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        end_s = time.monotonic() + READY_S
        while not self._ready():
            if self._server.poll() is not None or time.monotonic() > end_s:
                self.close()
                raise RuntimeError(f"infinity_emb was not ready within {READY_S:g} s, exit code {self._server.poll()}")
            time.sleep(0.1)

    def encode(self, texts: list[str]) -> Any:
        import numpy as np

        body = json.dumps({"model": "minilm", "input": texts})
        try:
            status, said = self._post(body)
        except (ConnectionError, http.client.RemoteDisconnected):
            # The server closes a connection that was idle for a while, as it is between two turns.
            self._connection.close()
            status, said = self._post(body)
        if status != 200:
            raise RuntimeError(f"infinity_emb answered {status}: {said[:200]!r}")
        return np.array([row["embedding"] for row in json.loads(said)["data"]], np.float32)

    def _post(self, body: str) -> tuple[int, bytes]:
        self._connection.request("POST", "/embeddings", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

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

    def _ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
