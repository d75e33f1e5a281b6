"""Texts to served models and their answers back, over gRPC or HTTP."""

from trimaran.client.asynchronous import AsyncClient
from trimaran.client.calls import Embeddings, Model, Ranking, TokenVectors, TokenWeights
from trimaran.client.place import Protocol
from trimaran.client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Client",
    "Embeddings",
    "Model",
    "Protocol",
    "Ranking",
    "TokenVectors",
    "TokenWeights",
]
