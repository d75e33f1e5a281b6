from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.distances import (
    cosine_distances,
    epsilon_recalls,
    max_abs_difference,
    neighbour_overlaps,
    scale_of,
    similarity_changes,
)
from trimaran.core.tasks import TASKS

embedding_fidelity = TASKS["embedding"].fidelity
classification = TASKS["text-classification"]
ROWS = np.random.default_rng(3).standard_normal((40, 16)).astype(np.float32)


def test_equal_vectors_are_perfect_by_every_metric() -> None:
    found = embedding_fidelity({"embedding": ROWS}, {"embedding": ROWS.copy()})
    assert found["neighbour_overlap"] == 1.0
    assert found["rank_correlation"] == pytest.approx(1.0)
    assert found["mean_cosine_distance"] == pytest.approx(0.0, abs=1e-15)


def test_a_scaled_vector_has_no_cosine_distance_but_a_difference() -> None:
    assert cosine_distances(ROWS, 2 * ROWS) == pytest.approx(0.0, abs=1e-12)
    assert cosine_distances(0 * ROWS, 0 * ROWS) == pytest.approx(0.0) and cosine_distances(ROWS, 0 * ROWS).min() == 1
    assert max_abs_difference(ROWS, 2 * ROWS) == pytest.approx(np.abs(ROWS).max())


def test_unrelated_vectors_share_few_neighbours() -> None:
    other = np.random.default_rng(4).standard_normal(ROWS.shape)
    assert neighbour_overlaps(ROWS, other).mean() < 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_number_is_infinitely_far(bad: float) -> None:
    broken = ROWS.copy()
    broken[0, 0] = bad
    assert max_abs_difference(ROWS, broken) == np.inf


def test_labels_and_probabilities_are_compared_not_logits() -> None:
    wanted, shifted = {"logits": np.array([[1.0, 2.0], [3.0, 0.0]])}, {"logits": np.array([[6.0, 7.0], [8.0, 5.0]])}
    assert classification.fidelity(wanted, shifted)["label_agreement"] == 1.0
    assert classification.change.value(wanted, shifted) == pytest.approx(0.0, abs=1e-7)
    flipped = {"logits": np.array([[2.0, 1.0], [3.0, 0.0]])}
    assert classification.fidelity(wanted, flipped)["label_agreement"] == 0.5


def test_differences_are_relative_only_where_values_are_large() -> None:
    assert scale_of(np.array([0.5, -0.25])) == 1.0
    assert scale_of(np.array([-12.0, 3.0, np.inf])) == 12.0


def test_a_few_texts_that_move_far_are_in_the_tail_and_not_in_the_mean() -> None:
    wanted = {"logits": np.zeros((400, 2), np.float32)}
    found = {"logits": wanted["logits"].copy()}
    found["logits"][7] = [0.2, 0.0]
    metrics = classification.fidelity(wanted, found)
    assert metrics["mean_probability_change"] < 0.005
    assert metrics["tail_probability_change"] == pytest.approx(1 / (1 + np.exp(-0.2)) - 0.5)


def test_the_tail_of_independent_labels_is_by_the_label_that_moved_most() -> None:
    wanted = {"label_probabilities": np.full((400, 3), 0.5)}
    found = {"label_probabilities": wanted["label_probabilities"] + [0.0, 0.03, -0.01]}
    assert classification.fidelity(wanted, found)["tail_probability_change"] == pytest.approx(0.03)


def test_the_tail_of_a_regression_is_relative_to_its_largest_value() -> None:
    wanted = {"values": np.linspace(0, 5, 400)[:, None]}
    found = {"values": wanted["values"] + 0.05}
    assert classification.fidelity(wanted, found)["tail_probability_change"] == pytest.approx(0.01)


def test_the_tail_of_vectors_is_the_distance_of_the_one_that_turned() -> None:
    wanted = {"embedding": np.tile(np.eye(4)[0], (400, 1)) + np.random.default_rng(1).normal(0, 0.1, (400, 4))}
    turned = {"embedding": wanted["embedding"].copy()}
    turned["embedding"][3] = -turned["embedding"][3]
    metrics = embedding_fidelity(wanted, turned)
    assert metrics["tail_cosine_distance"] == pytest.approx(2.0)
    assert metrics["mean_cosine_distance"] == pytest.approx(2.0 / 400)


def test_neighbours_that_are_equally_near_may_change_places_and_others_may_not() -> None:
    """Thirty texts on an arc. A hair apart, any ten are as good as eager's; far apart, a wrong one counts."""
    near, far = (np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, arc, 30)]) for arc in (0.05, 3.0))
    for vectors, worst in ((near, 1.0), (far, 0.5)):
        moved = vectors[np.random.default_rng(1).permutation(30)]
        assert epsilon_recalls(vectors, vectors).min() == 1.0
        assert (epsilon_recalls(vectors, moved).mean() >= worst) == (worst == 1.0)
        assert neighbour_overlaps(vectors, moved).mean() < 0.6


def test_an_index_made_by_the_reference_is_searched_too() -> None:
    """The candidate turns every vector alike: by its own index all is well, by the reference's nothing is."""
    vectors = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 6, 60)])
    turned = vectors @ np.array([[0.0, -1.0], [1.0, 0.0]])
    assert neighbour_overlaps(vectors, turned).min() == 1.0
    assert epsilon_recalls(vectors, turned).mean() < 0.2
    assert similarity_changes(vectors, turned).max() < 1e-12
    assert similarity_changes(vectors, vectors * [1.0, 0.5]).max() > 0.01
