"""infinity-emb as the server that it is, started by its own command."""

from __future__ import annotations

import sys
from pathlib import Path

from http_peer import MODEL, HttpPeer


def prepare(model: Path, work: Path, *, texts: list[str], engine: str) -> None:
    """Nothing: it reads the model's own folder."""


class Peer(HttpPeer):
    def __init__(self, model: Path, work: Path, *, threads: int, engine: str) -> None:
        def command(port: int) -> list[str]:
            program = [str(Path(sys.executable).with_name("infinity_emb")), "v2", "--model-id", str(model)]
            place = ["--host", "127.0.0.1", "--port", str(port), "--url-prefix", "/v1"]
            options = ["--engine", engine, "--device", "cpu", "--served-model-name", MODEL]
            return [*program, *place, *options, "--no-compile", "--no-bettertransformer", "--log-level", "error"]

        telemetry_off = {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
        # It keeps a cache in the folder that it is started from.
        super().__init__(command, cwd=work, environment=telemetry_off)
