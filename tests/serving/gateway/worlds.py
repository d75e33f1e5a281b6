"""A gateway as its users have it: a process of its own before the real Triton, asked over its port."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.commands import COMMAND, environment, trimaran_json_here
from tests.serving.worlds import eventually


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """`key` is empty where none is wanted."""

    port: int
    pid: int
    key: str
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
        key: str | None = None,
        timeout_s: float = 60.0,
    ) -> Answer:
        """`body`: bytes as they are, anything else as JSON; `key=""` sends none."""
        given = self.key if key is None else key
        said = {"Authorization": f"Bearer {given}"} if given else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            said["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method or ("GET" if data is None else "POST"), path, data, {**said, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def gateway(repository: Path, triton_url: str, folder: Path, *options: object, auth: bool = True) -> Iterator[Running]:
    """Returns when it says that it is ready; ended by SIGTERM, which must end it well."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    key = trimaran_json_here("gateway", "key", "add", "tests", home=home)["key"] if auth else ""
    log = folder / "access.log"
    command = [
        *COMMAND, "gateway", "--repository", str(repository), "--url", triton_url, "--port", "0",
        "--access-log", str(log), "--json", *map(str, options), *([] if auth else ["--no-auth"]),
    ]  # fmt: skip
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "stderr").read_text()
        running = Running(json.loads(line)["port"], process.pid, key, log)
        assert eventually(lambda: running.ask("/readyz", key="").status == 200), (folder / "stderr").read_text()
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        process.stdout.close()
    assert code in (0, -signal.SIGTERM), f"{code}: {(folder / 'stderr').read_text()}"


HELD_MODEL = '''
import time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as triton

FOLDER = Path(__file__).parent


class TritonPythonModel:
    """Answers with the length of each text; "hold" is answered when the file `released` appears."""

    def execute(self, requests):
        responses = []
        for request in requests:
            texts = triton.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel()
            if b"hold" in texts:
                (FOLDER / "holding").touch()
                while not (FOLDER / "released").exists():
                    time.sleep(0.01)
            lengths = np.array([[len(text)] for text in texts], np.float32)
            responses.append(triton.InferenceResponse([triton.Tensor("EMBEDDING", lengths)]))
        return responses
'''


@dataclass(frozen=True)
class HeldModel:
    """The repository of a model that holds one request until it is told to release it."""

    repository: Path

    @property
    def _folder(self) -> Path:
        return self.repository / "slow" / "1"

    def holds(self) -> bool:
        return (self._folder / "holding").exists()

    def release(self) -> None:
        (self._folder / "released").touch()

    def reset(self) -> None:
        for name in ("holding", "released"):
            (self._folder / name).unlink(missing_ok=True)


def held_world(root: Path) -> HeldModel:
    held = HeldModel(slow_world(root))
    (held.repository / "slow" / "1" / "model.py").write_text(HELD_MODEL)
    return held


def slow_world(root: Path) -> Path:
    """A repository of one embedding model that sleeps as many seconds as its text says."""
    from tests.serving.worlds import SLOW_CONFIG, slow_repository
    from tests.tiny import tiny_serving, tiny_tokenizer

    repository = slow_repository(root)
    version = repository / "slow" / "1"
    tiny_tokenizer(version / "tokenizer.json")
    tiny_serving(version)
    task = 'parameters { key: "task" value { string_value: "embedding" } }\n'
    (version.parent / "config.pbtxt").write_text(
        SLOW_CONFIG.replace("max_queue_size: 1 ", "max_queue_size: 64 ") + task
    )
    return repository


@contextlib.contextmanager
def collecting(host: str) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of an OpenTelemetry collector that listens at this address, and what it was sent."""
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer((host, 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host}:{server.server_address[1]}", received
        server.shutdown()
