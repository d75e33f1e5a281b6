"""transformers' own pipeline behind a plain web framework, in one process."""

from __future__ import annotations

import sys
from pathlib import Path

from http_peer import HttpPeer

HERE = Path(__file__).parent


def prepare(model: Path, work: Path, *, texts: list[str]) -> None:
    """Nothing: it reads the model's own folder."""


class Peer(HttpPeer):
    def __init__(self, model: Path, work: Path, *, threads: int) -> None:
        def command(port: int) -> list[str]:
            place = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
            return [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "web_pipeline:app", *place]

        super().__init__(
            command, cwd=work, environment={"PIPELINE_MODEL": str(model), "PIPELINE_THREADS": str(threads)}
        )
