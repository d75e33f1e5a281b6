"""A trimaran model as LangChain's `Embeddings`: for vector stores, retrievers and semantic chunkers."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings

import trimaran


class TrimaranEmbeddings(Embeddings):
    """Documents and queries take the model's own prompts.

    Example:
        >>> store = InMemoryVectorStore(TrimaranEmbeddings(trimaran.load("minilm")))
    """

    def __init__(self, model: trimaran.EmbeddingModel) -> None:
        self.model = model

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.model.encode_document(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.model.encode_query(text).tolist()
