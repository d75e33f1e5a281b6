"""The function that answers texts, for each task."""

from __future__ import annotations

from trimaran.runtime.tasks.embedding import embeddings
from trimaran.runtime.tasks.feature_extraction import token_features
from trimaran.runtime.tasks.fill_mask import fillings
from trimaran.runtime.tasks.question_answering import answers
from trimaran.runtime.tasks.rerank import ranked
from trimaran.runtime.tasks.sparse_embedding import sparse_vectors
from trimaran.runtime.tasks.text_classification import classes
from trimaran.runtime.tasks.token_classification import entities
from trimaran.runtime.tasks.zero_shot_classification import zero_shot

__all__ = [
    "answers", "classes", "embeddings", "entities", "fillings", "ranked", "sparse_vectors", "token_features",
    "zero_shot",
]  # fmt: skip
