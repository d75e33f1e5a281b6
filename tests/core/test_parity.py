from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.distances import (
    classification_change,
    classification_fidelity,
    cosine_distances,
    embedding_fidelity,
    max_abs_difference,
    neighbour_overlap,
    scale_of,
)

ROWS = np.random.default_rng(3).standard_normal((40, 16)).astype(np.float32)


def test_equal_vectors_are_perfect_by_every_metric() -> None:
    found = embedding_fidelity({"embedding": ROWS}, {"embedding": ROWS.copy()})
    assert found["neighbour_overlap"] == 1.0
    assert found["rank_correlation"] == pytest.approx(1.0)
    assert found["mean_cosine_distance"] == pytest.approx(0.0, abs=1e-15)


def test_a_scaled_vector_has_no_cosine_distance_but_a_difference() -> None:
    assert cosine_distances(ROWS, 2 * ROWS) == pytest.approx(0.0, abs=1e-12)
    assert max_abs_difference(ROWS, 2 * ROWS) == pytest.approx(np.abs(ROWS).max())


def test_unrelated_vectors_share_few_neighbours() -> None:
    other = np.random.default_rng(4).standard_normal(ROWS.shape)
    assert neighbour_overlap(ROWS, other) < 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_number_is_infinitely_far(bad: float) -> None:
    broken = ROWS.copy()
    broken[0, 0] = bad
    assert max_abs_difference(ROWS, broken) == np.inf


def test_labels_and_probabilities_are_compared_not_logits() -> None:
    wanted, shifted = {"logits": np.array([[1.0, 2.0], [3.0, 0.0]])}, {"logits": np.array([[6.0, 7.0], [8.0, 5.0]])}
    assert classification_fidelity(wanted, shifted)["label_agreement"] == 1.0
    assert classification_change(wanted, shifted) == pytest.approx(0.0, abs=1e-7)
    flipped = {"logits": np.array([[2.0, 1.0], [3.0, 0.0]])}
    assert classification_fidelity(wanted, flipped)["label_agreement"] == 0.5


def test_differences_are_relative_only_where_values_are_large() -> None:
    assert scale_of(np.array([0.5, -0.25])) == 1.0
    assert scale_of(np.array([-12.0, 3.0, np.inf])) == 12.0
