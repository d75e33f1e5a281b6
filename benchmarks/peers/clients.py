"""Callers that ask as users do: with an ordinary client library, each answer decoded to numbers.

They live in a child process of their own, so that their work is not the server's. A client is a row of `CLIENTS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Ask = Callable[[str], Awaitable[Any]]
Texts = list[str]
TIMEOUT_S = 60.0
_WARM_UP = 16
# The way in of each server: OpenAI's API, or Triton over one of its two protocols.
OPENAI, TRITON_HTTP, TRITON_GRPC = "openai", "http", "grpc"


@dataclass(frozen=True)
class Client:
    """One client library."""

    name: str
    # The distribution whose version is shown.
    library: str
    # What it can speak to.
    speaks: tuple[str, ...]
    # (way in, address, model) -> a connection: one client object that all callers share, as its users are told.
    connect: Callable[[str, str, str], AbstractAsyncContextManager[Ask]]


@contextlib.asynccontextmanager
async def _openai(way: str, url: str, model: str) -> AsyncIterator[Ask]:
    import openai

    client = openai.AsyncOpenAI(base_url=f"http://{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S)

    async def ask(text: str) -> Any:
        answer = await client.embeddings.create(model=model, input=[text])
        return answer.data[0].embedding

    async with client:
        yield ask


@contextlib.asynccontextmanager
async def _httpx(way: str, url: str, model: str) -> AsyncIterator[Ask]:
    import httpx2 as httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=f"http://{url}", timeout=TIMEOUT_S, limits=limits) as client:

        async def ask(text: str) -> Any:
            answer = await client.post("/v1/embeddings", json={"model": model, "input": [text]})
            answer.raise_for_status()
            return answer.json()["data"][0]["embedding"]

        async def ask_triton(text: str) -> Any:
            tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
            body = {"inputs": [tensor], "outputs": [{"name": "EMBEDDING"}]}
            answer = await client.post(f"/v2/models/{model}/infer", json=body)
            answer.raise_for_status()
            return answer.json()["outputs"][0]["data"]

        yield ask if way == OPENAI else ask_triton


@contextlib.asynccontextmanager
async def _tritonclient(way: str, url: str, model: str) -> AsyncIterator[Ask]:
    import importlib

    import numpy as np

    tensors = importlib.import_module(f"tritonclient.{way}")
    library = importlib.import_module(f"tritonclient.{way}.aio")
    options = {"conn_limit": 0} if way == TRITON_HTTP else {}
    wanted = [tensors.InferRequestedOutput("EMBEDDING")]
    async with library.InferenceServerClient(url, **options) as client:

        async def ask(text: str) -> Any:
            tensor = tensors.InferInput("TEXT", [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[text.encode()]], np.object_))
            answer = await client.infer(model, [tensor], outputs=wanted)
            return answer.as_numpy("EMBEDDING")[0]

        yield ask


@contextlib.asynccontextmanager
async def _in_process(way: str, url: str, model: str) -> AsyncIterator[Ask]:
    """`url` is the folder of a version. No server at all: what the others are measured against."""
    import trimaran

    with trimaran.load(url) as opened:

        async def ask(text: str) -> Any:
            return opened.encode([text])[0]

        yield ask


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("OpenAI's client", "openai", (OPENAI,), _openai),
        Client("httpx", "httpx2", (OPENAI, TRITON_HTTP), _httpx),
        Client("tritonclient gRPC", "tritonclient", (TRITON_GRPC,), _tritonclient),
        Client("tritonclient HTTP", "tritonclient", (TRITON_HTTP,), _tritonclient),
        Client("in process", "trimaran", ("folder",), _in_process),
    )
}


def sweep(
    client: str,
    way: str,
    url: str,
    model: str,
    texts_path: str,
    callers: list[int],
    samples: int,
    time_s: float,
    limit_s: float,
) -> list[dict[str, Any]]:
    """Runs in the child. Each number of callers in turn, as JSON of `ClosedPoint`s."""
    texts = list(json.loads(Path(texts_path).read_text(encoding="utf-8")))

    async def run() -> list[dict[str, Any]]:
        async with CLIENTS[client].connect(way, url, model) as ask:
            for text in texts[:_WARM_UP]:
                assert len(await ask(text)) > 0
            return [await closed_loop(ask, texts, number, samples, time_s, limit_s) for number in callers]

    return asyncio.run(run())


async def closed_loop(
    ask: Ask, texts: Texts, callers: int, samples: int, time_s: float, limit_s: float
) -> dict[str, Any]:
    """Callers that ask again when answered, until enough samples AND enough time are reached."""
    latencies: list[int] = []
    failures = 0
    begun_s = time.monotonic()

    def enough() -> bool:
        spent_s = time.monotonic() - begun_s
        return spent_s >= limit_s or (len(latencies) + failures >= samples and spent_s >= time_s)

    async def caller(number: int) -> None:
        nonlocal failures
        place = number
        while not enough():
            asked_ns = time.perf_counter_ns()
            try:
                await ask(texts[place % len(texts)])
            except Exception:  # each library has errors of its own: none of them is an answer
                failures += 1
            else:
                latencies.append(time.perf_counter_ns() - asked_ns)
            place += callers

    begun_ns = time.perf_counter_ns()
    await asyncio.gather(*(caller(number) for number in range(callers)))
    elapsed_ns = time.perf_counter_ns() - begun_ns
    return {"concurrency": callers, "elapsed_ns": elapsed_ns, "latencies_ns": latencies, "failures": failures}
