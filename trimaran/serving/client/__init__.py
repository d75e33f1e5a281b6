"""Clients for served models, over gRPC or HTTP."""

from trimaran.core.choices import Protocol
from trimaran.serving.client.asynchronous import AsyncClient
from trimaran.serving.client.question import Model
from trimaran.serving.client.results import Embeddings, HybridVectors, Ranking, TokenVectors, TokenWeights
from trimaran.serving.client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Client",
    "Embeddings",
    "HybridVectors",
    "Model",
    "Protocol",
    "Ranking",
    "TokenVectors",
    "TokenWeights",
]
