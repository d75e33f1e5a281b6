"""What `trimaran size` measures of a server before it simulates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

from trimaran.pipeline.size import measure_server
from trimaran.serving.client import Client
from trimaran.serving.client.question import Model

MODEL = Model("m", "embedding", 8, frozenset({"TEXT"}), {"EMBEDDING": (2,)}, {})


class Recorder:
    """Notes the texts of each call, by the size of its batch."""

    def __init__(self) -> None:
        self.texts: dict[int, set[object]] = defaultdict(set)

    def model(self, name: str) -> Model:
        return MODEL

    def ask(self, name: str, build: Callable[[Model], Any]) -> None:
        (request,) = build(MODEL).requests
        batch = request["TEXT"].ravel().tolist()
        self.texts[len(batch)].update(batch)


def test_every_size_of_batch_is_measured_on_all_kinds_of_texts() -> None:
    """Thirty texts of a few hundred once made the median of single texts a quarter too long."""
    client = Recorder()
    server = measure_server(cast(Client, client), "m", [f"text {number}" for number in range(200)], instances=2)
    assert {size: len(texts) for size, texts in client.texts.items()} == {1: 200, 2: 200, 4: 200, 8: 200}
    assert sorted(server.seconds) == [1, 2, 4, 8] and server.instances == 2
    assert len(server.seconds[1]) == 240, "without the rounds that warm up"
