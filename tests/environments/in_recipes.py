"""Run in an environment that has LangChain, LlamaIndex and Haystack: `in_recipes.py MODEL STORE`, prints JSON."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "recipes"))

from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack_embedders import TrimaranDocumentEmbedder, TrimaranRanker, TrimaranTextEmbedder
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_embeddings import TrimaranEmbeddings
from llama_index.core import Document as IndexDocument
from llama_index.core import VectorStoreIndex
from llama_index_embedding import TrimaranEmbedding

import trimaran

TEXTS = ["the cat sat", "dog ran", "good good dog", "bad cat"]


def langchain(model) -> str:
    store = InMemoryVectorStore(TrimaranEmbeddings(model))
    store.add_texts(TEXTS)
    return store.similarity_search(TEXTS[2], k=1)[0].page_content


def llama_index(model) -> str:
    documents = [IndexDocument(text=text) for text in TEXTS]
    index = VectorStoreIndex.from_documents(documents, embed_model=TrimaranEmbedding(model))
    return index.as_retriever(similarity_top_k=1).retrieve(TEXTS[2])[0].text


def haystack(model) -> list[str]:
    store = InMemoryDocumentStore(embedding_similarity_function="cosine")
    made = TrimaranDocumentEmbedder(model).run(documents=[Document(content=text) for text in TEXTS])
    store.write_documents(made["documents"])
    # A reranker by hand: the shortest document first.
    by_length = SimpleNamespace(
        rerank=lambda query, texts, top_k: sorted(
            ({"corpus_id": index, "score": -len(text)} for index, text in enumerate(texts)),
            key=lambda row: -row["score"],
        )[:top_k]
    )
    pipeline = Pipeline()
    pipeline.add_component("embedder", TrimaranTextEmbedder(model))
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=2))
    pipeline.add_component("ranker", TrimaranRanker(by_length, top_k=1))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "ranker.documents")
    found = pipeline.run(
        {"embedder": {"text": TEXTS[2]}, "ranker": {"query": TEXTS[2]}}, include_outputs_from={"retriever"}
    )
    return [part["documents"][0].content for part in (found["retriever"], found["ranker"])]


def main() -> None:
    folder, store = sys.argv[1:]
    with trimaran.load(folder, store=store) as model:
        found = {"langchain": langchain(model), "llama_index": llama_index(model), "haystack": haystack(model)}
    sys.stdout.write(json.dumps(found) + "\n")


main()
