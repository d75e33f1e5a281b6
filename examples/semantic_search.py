"""Searches the lines of a file by meaning: `python examples/semantic_search.py minilm texts.txt "a query"`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trimaran


def build_index(model: trimaran.EmbeddingModel, texts: Sequence[str]) -> Any:
    """An exact Faiss index over unit vectors: its inner product is the cosine."""
    import faiss

    index = faiss.IndexFlatIP(model.get_embedding_dimension())
    index.add(model.encode_document(texts, normalize_embeddings=True))
    return index


def search(
    model: trimaran.EmbeddingModel, index: Any, texts: Sequence[str], query: str, *, count: int = 5
) -> list[tuple[float, str]]:
    scores, rows = index.search(model.encode_query([query], normalize_embeddings=True), min(count, len(texts)))
    return [(float(score), texts[row]) for score, row in zip(scores[0], rows[0], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the name of a deployed model, or a folder")
    parser.add_argument("file", type=Path, help="one text a line")
    parser.add_argument("query")
    arguments = parser.parse_args()
    texts = arguments.file.read_text(encoding="utf-8").splitlines()
    with trimaran.load(arguments.model) as model:
        for score, text in search(model, build_index(model, texts), texts, arguments.query):
            print(f"{score:.3f}  {text}")


if __name__ == "__main__":
    main()
