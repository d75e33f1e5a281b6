"""The real MiniLM asked by every kind of caller: each gets eager PyTorch's vectors within the certificate's bound."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.end_to_end.conftest import World
from tests.end_to_end.test_minilm import eager_vectors
from tests.serving.gateway.worlds import Running, gateway
from tests.texts import ASKED
from trimaran import AsyncClient, Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Served:
    grpc_url: str
    http_url: str
    gateway: Running


@pytest.fixture(scope="module")
def served(minilm: World, server: dict[str, int]) -> Iterator[Served]:
    grpc_url, http_url = (f"127.0.0.1:{server[f'{kind}_port']}" for kind in ("grpc", "http"))
    with gateway(minilm.repository, grpc_url, minilm.folder / "gateway") as started:
        yield Served(grpc_url, http_url, started)


@pytest.fixture(scope="module")
def eager() -> np.ndarray:
    return eager_vectors()


def openai_client(served: Served) -> np.ndarray:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{served.gateway.url}/v1", api_key=served.gateway.key) as client:
        assert [model.id for model in client.models.list().data] == ["minilm"]
        found = client.embeddings.create(model="minilm", input=list(ASKED))
    assert found.usage.prompt_tokens > len(ASKED)
    return np.asarray([item.embedding for item in found.data])


def curl(served: Served) -> np.ndarray:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"input": list(ASKED), "encoding_format": "base64"})
    done = subprocess.run(
        ["curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {served.gateway.key}",
         "-H", "Content-Type: application/json", "--data-binary", "@-", f"{served.gateway.url}/v1/embeddings"],
        input=body, capture_output=True, text=True, check=True,
    )  # fmt: skip
    data = json.loads(done.stdout)["data"]
    return np.stack([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in data])


def bert_as_service(served: Served) -> np.ndarray:
    found = served.gateway.ask("/encode", {"id": 7, "texts": list(ASKED), "is_tokenized": False}).json
    assert (found["id"], found["status"]) == (7, 200)
    return np.asarray(found["result"])


def triton_grpc(served: Served) -> np.ndarray:
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(served.grpc_url) as client:
        return _plainly(triton, client)


def triton_http(served: Served) -> np.ndarray:
    import tritonclient.http as triton

    with triton.InferenceServerClient(served.http_url) as client:
        return _plainly(triton, client)


def _plainly(triton: object, client: object) -> np.ndarray:
    vectors = []
    for begin in range(0, len(ASKED), 8):
        data = np.array([[text.encode()] for text in ASKED[begin : begin + 8]], dtype=np.object_)
        text = triton.InferInput("TEXT", data.shape, "BYTES")  # type: ignore[attr-defined]
        text.set_data_from_numpy(data)
        vectors.append(client.infer("minilm", [text]).as_numpy("EMBEDDING"))  # type: ignore[attr-defined]
    return np.concatenate(vectors)


def own_client(served: Served) -> np.ndarray:
    with Client(served.http_url, protocol="http") as client:
        return client.embed("minilm", ASKED)


def own_async_client(served: Served) -> np.ndarray:
    async def asked() -> np.ndarray:
        async with AsyncClient(served.grpc_url) as client:
            return await client.embed("minilm", ASKED)

    return asyncio.run(asked())


@pytest.mark.parametrize(
    "caller", [openai_client, curl, bert_as_service, triton_grpc, triton_http, own_client, own_async_client]
)
def test_every_caller_gets_eagers_vectors(
    minilm: World, served: Served, eager: np.ndarray, caller: Callable[[Served], np.ndarray]
) -> None:
    found = caller(served)
    assert found.shape == eager.shape
    distances = 1 - (found * eager).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(eager, axis=-1)
    chosen = next(row for row in minilm.said["candidates"] if row["verdict"] == "chosen")
    assert distances.max() <= chosen["quality"]["worst_cosine_distance"] + 1e-6
