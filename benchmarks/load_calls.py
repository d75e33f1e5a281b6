"""How the scripts ask under load: OpenAI's own client at a gateway, or ours at Triton. Every request has an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from experiment import distance, summed_pss

from trimaran.core.errors import NotReady, Overloaded, ServerError
from trimaran.serving.client import AsyncClient
from trimaran.serving.gateway.keys import add_key

# Of 1 − cosine: what batching and rounding may change, far below the distance to any other text's vector.
LARGEST_CHANGE = 1e-4
PROPER_REFUSALS = {"429", "503", "Overloaded"}


@dataclass(frozen=True)
class RequestOutcome:
    """How one request ended."""

    began_s: float
    seconds: float
    # An HTTP number or the name of an error.
    status: str
    wrong: bool = False
    # Neither answered nor refused.
    lost: bool = False
    # Refused, but not by a proper status that says when to come back.
    improper: bool = False

    @property
    def ended_s(self) -> float:
        return self.began_s + self.seconds

    @property
    def is_right(self) -> bool:
        return self.status == "200" and not self.wrong


class LoadTarget(Protocol):
    async def ask(self, given: Any, *, model: str = "", key: str = "") -> tuple[str, Any, bool]:
        """Status, vectors or None, and whether a refusal said when to come back.

        A text, a list of texts or a list of token ids; another model or key than the usual one.
        """


class TritonTarget:
    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client, self._model = client, model

    async def ask(self, given: Any, *, model: str = "", key: str = "") -> tuple[str, Any, bool]:
        texts = [given] if isinstance(given, str) else given
        try:
            return "200", await self._client.embed(model or self._model, texts), True
        except NotReady:
            raise
        except ServerError as error:
            return type(error).__name__, None, isinstance(error, Overloaded)


class OpenAITarget:
    """Without the client's retries, so that every answer of the gateway is seen."""

    def __init__(self, url: str, model: str, key: str, timeout_s: float = 120.0) -> None:
        import openai

        self._openai, self._model = openai, model
        self._client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=timeout_s)

    async def ask(self, given: Any, *, model: str = "", key: str = "") -> tuple[str, Any, bool]:
        client = self._client.with_options(api_key=key) if key else self._client
        try:
            answer = await client.embeddings.create(model=model or self._model, input=given)
        except self._openai.APIStatusError as error:
            return str(error.status_code), None, "Retry-After" in error.response.headers
        return "200", np.array([row.embedding for row in answer.data], np.float32), True

    async def close(self) -> None:
        await self._client.close()


@contextlib.asynccontextmanager
async def connected(
    target: str, model: str, triton_url: str, gateway: tuple[str, str], *, timeout_s: float = 120.0
) -> AsyncIterator[LoadTarget]:
    """`target` is triton or gateway; `gateway` its address and a key. `timeout_s` is that of OpenAI's client."""
    if target == "triton":
        async with AsyncClient(triton_url, concurrency=10_000, timeout_s=60) as client:
            yield TritonTarget(client, model)
        return
    caller = OpenAITarget(gateway[0], model, gateway[1], timeout_s)
    try:
        yield caller
    finally:
        await caller.close()


async def attempt(target: LoadTarget, given: Any, wanted: np.ndarray, begin: float, **options: str) -> RequestOutcome:
    """Asks once. `wanted` are the right vectors, `begin` is what times are counted from."""
    sent = time.perf_counter()
    try:
        status, vectors, proper = await target.ask(given, **options)
    except Exception as error:  # whatever it is, this request has no answer
        return RequestOutcome(sent - begin, time.perf_counter() - sent, type(error).__name__, lost=True)
    seconds = time.perf_counter() - sent
    wrong = vectors is not None and not is_right(vectors, wanted)
    improper = vectors is None and not (proper and status in PROPER_REFUSALS)
    return RequestOutcome(sent - begin, seconds, status, wrong, improper=improper)


def is_right(vectors: Any, wanted: np.ndarray) -> bool:
    return len(vectors) == len(wanted) and all(
        distance(vector, row) <= LARGEST_CHANGE for vector, row in zip(vectors, wanted, strict=True)
    )


async def watch_memory(pids: Sequence[int], samples: list[tuple[float, int]]) -> None:
    """Memory of these processes and all under them, twice a second; shared pages count once."""
    begin = time.perf_counter()
    while True:
        samples.append((time.perf_counter() - begin, sum(map(summed_pss, pids))))
        await asyncio.sleep(0.5)


def growth(samples: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Of the median of the last quarter over that of the second: the first one still fills caches."""
    sizes = [size for _, size in samples]
    quarter = max(1, len(sizes) // 4)
    early = statistics.median(sizes[quarter : 2 * quarter] or sizes)
    late = statistics.median(sizes[-quarter:])
    return {"early_bytes": early, "late_bytes": late, "growth": late / early - 1 if early else 0.0}


@contextlib.contextmanager
def gateway_before(repository: Path, triton_url: str, folder: Path, *settings: str) -> Iterator[tuple[str, str, int]]:
    """A gateway with these options: its address, a key to it and its process."""
    keys = folder / "keys.json"
    key = add_key(keys, "calls")
    command = [
        sys.executable, "-m", "trimaran", "gateway", "--repository", str(repository), "--url", triton_url,
        "--port", "0", "--json", "--keys", str(keys), "--access-log", str(folder / "access.log"),
        *settings,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], key, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
