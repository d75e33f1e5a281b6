"""Trimaran models as Haystack components: a text embedder, a document embedder and a ranker for pipelines."""

from __future__ import annotations

from dataclasses import replace

from haystack import Document, component

import trimaran


@component
class TrimaranTextEmbedder:
    """Embeds a query, before a retriever."""

    def __init__(self, model: trimaran.EmbeddingModel) -> None:
        self.model = model

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        return {"embedding": self.model.encode_query(text).tolist()}


@component
class TrimaranDocumentEmbedder:
    """Embeds documents, before a document writer."""

    def __init__(self, model: trimaran.EmbeddingModel) -> None:
        self.model = model

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        vectors = self.model.encode_document([document.content or "" for document in documents])
        pairs = zip(documents, vectors.tolist(), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in pairs]}


@component
class TrimaranRanker:
    """Puts the documents that a retriever found into order, with a reranker."""

    def __init__(self, model: trimaran.LocalModel, top_k: int | None = None) -> None:
        self.model, self.top_k = model, top_k

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        ranked = self.model.rerank(query, [document.content or "" for document in documents], top_k=self.top_k)
        return {"documents": [replace(documents[row["corpus_id"]], score=row["score"]) for row in ranked]}
