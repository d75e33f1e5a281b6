"""While a model was loaded again, 1,033 requests got 404, which no client sends again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.homes import home_at
from tests.serving.gateway.worlds import Running, gateway
from tests.serving.worlds import eventually
from tests.tiny import tiny_artifact
from trimaran.core.errors import NotReady
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import control
from trimaran.serving.triton.server import Server, launch

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]
RELOADS = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    for name in ("m", "neighbour"):
        lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name=name, rows="padded", threads=1)
    with home_at(tmp_path / "home"), launch(tmp_path / "r", drain=False) as server:
        yield server


def status_of(asked: Running, model: str) -> int:
    answer = asked.ask("/v1/embeddings", {"model": model, "input": "the cat"})
    assert answer.status != 503 or float(answer.headers["retry-after"]) > 0
    return answer.status


def test_a_starting_gateway_and_every_reload_answer_503_and_never_404(server: Server, tmp_path: Path) -> None:
    """The gateway is asked, and Triton by new clients of ours that know nothing of the model."""
    control.unload(server.control, "m")
    with gateway(server.repository, server.grpc_url, tmp_path / "g") as asked:
        assert status_of(asked, "m") == 503, "the gateway has never seen the model"
        assert status_of(asked, "m_onnxruntime") == status_of(asked, "nowhere") == 404
        control.load(server.control, "m")
        assert eventually(lambda: status_of(asked, "m") == 200)
        statuses, loaded_again = set[int](), threading.Event()

        def load_again() -> None:
            for _ in range(RELOADS):
                control.unload(server.control, "m")
                control.load(server.control, "m")
            loaded_again.set()

        thread = threading.Thread(target=load_again)
        thread.start()
        while not loaded_again.is_set():
            statuses.add(status_of(asked, "m"))
            with Client(server.grpc_url, retries=0) as client, contextlib.suppress(NotReady):
                client.embed("m", ["the cat"])
        thread.join()
        assert statuses and statuses <= {200, 503}
        assert eventually(lambda: status_of(asked, "m") == 200)
