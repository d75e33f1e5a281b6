"""Finds passages for a question: vectors choose many, a reranker puts the best first.

`python examples/rerank_for_rag.py minilm my-reranker passages.txt "a question"`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import trimaran


def best_passages(
    embedder: trimaran.EmbeddingModel,
    reranker: Any,
    passages: Sequence[str],
    question: str,
    *,
    candidates: int = 50,
    count: int = 5,
) -> list[tuple[float, str]]:
    """The vectors of the passages would be kept in an index; here they are made anew."""
    vectors = embedder.encode_document(passages, normalize_embeddings=True)
    nearest = np.argsort(-(vectors @ embedder.encode_query(question, normalize_embeddings=True)))[:candidates]
    chosen = [passages[row] for row in nearest]
    return [(row["score"], chosen[row["corpus_id"]]) for row in reranker.rerank(question, chosen, top_k=count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("embedder")
    parser.add_argument("reranker")
    parser.add_argument("file", type=Path, help="one passage a line")
    parser.add_argument("question")
    arguments = parser.parse_args()
    passages = arguments.file.read_text(encoding="utf-8").splitlines()
    with trimaran.load(arguments.embedder) as embedder, trimaran.load(arguments.reranker) as reranker:
        for score, passage in best_passages(embedder, reranker, passages, arguments.question):
            print(f"{score:.3f}  {passage}")


if __name__ == "__main__":
    main()
