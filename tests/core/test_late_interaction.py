"""Late interaction, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.late_interaction import maximum_similarities

QUERY = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
DOCUMENTS = [np.array([[3.0, 0.0], [0.0, -1.0]], np.float32), np.array([[0.0, 4.0]], np.float32)]


@pytest.mark.parametrize(
    ("similarity", "scores"),
    [("", [1.0 + 0.0, 0.0 + 1.0]), ("maxsim", [6.0 + 0.0, 0.0 + 4.0]), ("meanmaxsim", [3.0, 2.0])],
)
def test_the_best_similarity_of_each_query_token_counts(similarity: str, scores: list[float]) -> None:
    assert maximum_similarities(QUERY, DOCUMENTS, similarity=similarity).tolist() == scores
