"""A scikit-learn transformer: texts in, vectors out, for any `Pipeline`, `GridSearchCV` or `cross_val_score`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

import trimaran


class TextVectors(TransformerMixin, BaseEstimator):
    """Holds the name or folder of a model, not the model: clones and pickles stay small.

    Example:
        >>> make_pipeline(TextVectors("minilm"), LogisticRegression()).fit(texts, labels)
    """

    def __init__(self, model: str = "minilm", repository: str = "model_repository", normalize: bool = True) -> None:
        self.model, self.repository, self.normalize = model, repository, normalize

    def fit(self, texts: Sequence[str], labels: Any = None) -> TextVectors:
        self.n_features_out_ = self._opened().get_embedding_dimension()
        return self

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        return self._opened().encode(list(texts), normalize_embeddings=self.normalize)

    def get_feature_names_out(self, names: Any = None) -> np.ndarray:
        return np.array([f"vector{index}" for index in range(self.n_features_out_)], object)

    def _opened(self) -> trimaran.EmbeddingModel:
        if not hasattr(self, "opened_"):
            self.opened_ = trimaran.load(self.model, repository=self.repository)
        return self.opened_

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "opened_"}
