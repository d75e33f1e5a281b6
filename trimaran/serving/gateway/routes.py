"""The table of paths: what each takes, gives and does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from trimaran.serving.gateway import endpoints, messages
from trimaran.serving.gateway.endpoints import Call, Reply


@dataclass(frozen=True)
class Route:
    """`request` is None for GET. An `open` one wants no key, and says nothing that a key protects."""

    path: str
    request: type[BaseModel] | None
    response: type[BaseModel]
    handle: Callable[[Call, Any], Awaitable[Reply]]
    summary: str
    example: Any = None
    open: bool = False

    @property
    def method(self) -> str:
        return "POST" if self.request else "GET"


ROUTES: dict[str, Route] = {
    route.path: route
    for route in (
        Route(
            "/v1/embeddings",
            messages.EmbeddingsRequest,
            messages.EmbeddingsResponse,
            endpoints.embeddings,
            "Vectors of texts, as OpenAI's API has it",
            {"input": ["The harbour was quiet.", "A storm came up."]},
        ),
        Route("/v1/models", None, messages.ModelsResponse, endpoints.models, "The models that are served"),
        Route(
            "/rerank",
            messages.RerankRequest,
            messages.RerankResponse,
            endpoints.rerank,
            "Documents in the order of their fit to a query",
            {"query": "What floats?", "documents": ["A stone sinks.", "A boat floats."]},
        ),
        Route(
            "/classify",
            messages.ClassifyRequest,
            messages.ClassifyResponse,
            endpoints.classify,
            "Labels with scores, best first",
            {"inputs": ["A fine day on the water."]},
        ),
        Route(
            "/entities",
            messages.EntitiesRequest,
            messages.EntitiesResponse,
            endpoints.entities,
            "Names in texts, with character offsets",
            {"inputs": ["Ada Lovelace lived in London."]},
        ),
        Route(
            "/answer",
            messages.AnswerRequest,
            messages.AnswerResponse,
            endpoints.answer,
            "The part of a context that answers a question",
            {"question": "Where did Ada live?", "context": "Ada Lovelace lived in London."},
        ),
        Route(
            "/fill",
            messages.FillRequest,
            messages.FillResponse,
            endpoints.fill,
            "The most probable words for each mask",
            {"inputs": ["The boat has three [MASK]."]},
        ),
        Route(
            "/encode",
            messages.EncodeRequest,
            messages.EncodeResponse,
            endpoints.encode,
            "Vectors of texts, as bert-as-service has it",
            {"id": 1, "texts": ["hello world", "good day ||| good night"], "is_tokenized": False},
        ),
        Route("/healthz", None, messages.StatusResponse, endpoints.healthy, "Whether the gateway lives", open=True),
        Route(
            "/readyz",
            None,
            messages.StatusResponse,
            endpoints.ready,
            "Whether every model answered its last canary",
            open=True,
        ),
    )
}
