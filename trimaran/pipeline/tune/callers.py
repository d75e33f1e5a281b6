"""Callers of a trial server, inside the child process that makes the load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimaran.benchmarks.scenarios.loadgen import AskText, closed_loop
from trimaran.core.tasks.task import RequestRow
from trimaran.judging.golden import read_golden
from trimaran.serving.client import Client
from trimaran.serving.triton.verify import ask

_TIMEOUT_S = 30.0
_SAMPLES = 5


class GoldenCallers:
    """Lives in a child process. Each caller has a connection of its own and asks the golden rows in turn."""

    def __init__(self, url: str, golden: str) -> None:
        bundle = read_golden(Path(golden))
        self._url, self._rows = url, bundle.rows
        self._outputs = [item.name for item in bundle.answers]
        self._clients: list[Client] = []

    def load(self, model: str, callers: int, time_s: float) -> dict[str, Any]:
        """What that many callers got in that time, each asking again as soon as it was answered."""
        while len(self._clients) < callers:
            self._clients.append(Client(self._url, timeout_s=_TIMEOUT_S, concurrency=1, retries=0))
        asks = [_caller(client, model, self._rows, self._outputs) for client in self._clients[:callers]]
        load = closed_loop(asks, texts=len(self._rows), samples=_SAMPLES, time_s=time_s, limit_s=time_s + _TIMEOUT_S)
        return load.model_dump()


def _caller(client: Client, model: str, rows: Sequence[RequestRow], outputs: Sequence[str]) -> AskText:
    return lambda index: ask(client, model, [rows[index]], outputs=outputs)
