"""A proven embedding model behind Ray Serve: `serve run ray_serve:app model=minilm repository=/models`.

For those who run everything on Ray. Triton with our gateway answers the same calls with less CPU and memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve
from starlette.requests import Request

import trimaran


# `num_cpus` is the number of threads that the model was proven with; `trimaran inspect` shows it.
@serve.deployment(ray_actor_options={"num_cpus": 1}, max_ongoing_requests=64, health_check_period_s=5)
class Embeddings:
    """POST {"input": ["one text", "another"]}; texts of different callers share a call of the engine."""

    def __init__(self, model: str, repository: str) -> None:
        self.model = trimaran.load(model, repository=repository)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.0)
    async def encode(self, texts: list[str]) -> list[list[float]]:
        # In a thread, so that the replica goes on accepting calls.
        vectors = await asyncio.to_thread(self.model.encode, texts)
        return vectors.tolist()

    async def __call__(self, request: Request) -> dict[str, Any]:
        texts = (await request.json())["input"]
        vectors = await asyncio.gather(*map(self.encode, [texts] if isinstance(texts, str) else texts))
        return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}

    async def check_health(self) -> None:
        """A replica whose engine no longer answers is replaced."""
        await self.encode("alive?")


def app(arguments: dict[str, str]) -> serve.Application:
    replicas = int(arguments.get("replicas", "1"))
    deployment = Embeddings.options(num_replicas=replicas)
    return deployment.bind(arguments["model"], arguments.get("repository", "model_repository"))
