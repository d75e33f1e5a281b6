"""trimaran in the seat of a peer: what `trimaran deploy` chose, in process, served by Triton, or at the gateway."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Peer:
    """`repository` given: served over `wire`, or through a gateway that OpenAI's client asks.

    Otherwise the `folder` of a version is opened in this process, by the public `trimaran.load`.
    """

    def __init__(
        self,
        model: Path,
        work: Path,
        *,
        threads: int,
        folder: str = "",
        repository: str = "",
        name: str = "",
        wire: str = "http",
        gateway: bool = False,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._server: Any = None
        # Processes of it that are not Triton's.
        self._beside: list[int] = []
        self._place = {"kind": "triton", "wire": wire, "model": name}
        if repository:
            from trimaran.serving.client import Client
            from trimaran.serving.triton.server import launch

            self._server = self._stack.enter_context(launch(Path(repository)))
            url = self._server.http_url if wire == "http" else self._server.grpc_url
            if gateway:
                self.encode = self._asked_by_openai(repository, name)
                return
            self._place["url"] = url
            client = self._stack.enter_context(Client(url, protocol=wire))  # type: ignore[arg-type]
            self.encode = lambda texts: client.embed(name, texts)
        else:
            self.encode = self._opened(folder, threads)

    def _asked_by_openai(self, repository: str, name: str) -> Any:
        import numpy as np
        import openai

        triton = self._server.grpc_url
        command = [sys.executable, "-m", "trimaran", "gateway", "--repository", repository, "--url", triton]
        command += ["--port", "0", "--no-auth", "--json", "--access-log", os.devnull]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        self._beside = [process.pid]
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        self._place |= {"kind": "gateway", "url": url.removeprefix("http://")}
        # Its own retries wait until the gateway has seen the model.
        client = self._stack.enter_context(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=10))

        def encode(texts: list[str]) -> Any:
            answer = client.embeddings.create(model=name, input=texts)
            return np.array([row.embedding for row in answer.data], np.float32)

        return encode

    def _opened(self, folder: str, threads: int) -> Any:
        import trimaran

        model: Any = self._stack.enter_context(trimaran.load(folder, threads=threads))
        return model.encode

    def place(self) -> dict[str, str] | None:
        return self._place if self._server else None

    def pids(self) -> list[int]:
        if self._server is None:
            return []
        import psutil

        keeper = psutil.Process(self._server.keeper_pid)
        return [keeper.pid, *(child.pid for child in keeper.children(recursive=True)), *self._beside]

    def memory_bytes(self) -> int:
        """Of the whole server, its stubs included: the sum of their peaks."""
        from trimaran.core.isolation import peak_memory_bytes

        return sum(map(_peak_bytes, self.pids())) if self._server else peak_memory_bytes()

    def close(self) -> None:
        self._stack.close()


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.is_file() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
