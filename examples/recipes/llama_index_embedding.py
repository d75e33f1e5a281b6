"""A trimaran model as LlamaIndex's embedding: `Settings.embed_model = TrimaranEmbedding(trimaran.load("minilm"))`."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

import trimaran


class TrimaranEmbedding(BaseEmbedding):
    """Documents and queries take the model's own prompts. Asynchronous calls run in a thread."""

    _model: trimaran.EmbeddingModel = PrivateAttr()

    def __init__(self, model: trimaran.EmbeddingModel, **settings: Any) -> None:
        super().__init__(model_name=model.manifest.name, **settings)
        self._model = model

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._model.encode_query(query).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._model.encode_document(texts).tolist()
