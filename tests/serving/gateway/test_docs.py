"""The examples of docs/clients.md run as they are printed, and docs/gateway.md knows every path and option."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tests.commands import trimaran
from tests.serving.gateway.conftest import Tasks
from trimaran.serving.gateway.routes import ROUTES

DOCS = Path(__file__).parents[3] / "docs"


def test_the_examples_for_clients_run(tasks: Tasks) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "clients.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 3
    for block in blocks:
        found: dict[str, object] = {"address": tasks.server.grpc_url}
        exec(block, found)
        vectors = found.get("vectors", found.get("first"))
        assert isinstance(vectors, np.ndarray) and np.isfinite(vectors).all()


def test_every_path_and_option_of_the_gateway_is_in_the_docs(tmp_path: Path) -> None:
    text = (DOCS / "gateway.md").read_text(encoding="utf-8")
    missing = [path for path in (*ROUTES, "/metrics", "/openapi.json") if path not in text]
    assert not missing
    options = set(re.findall(r"--[a-z][a-z-]+", trimaran("gateway", "--help", home=tmp_path).stdout))
    known_elsewhere = {
        "--help",
        "--json",
        "--url",
        "--protocol",
        "--host",
        "--port",
        "--access-log",
        "--canary-interval",
    }
    assert not {option for option in options if option not in text} - known_elsewhere
