from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.tail import fewest_texts, proven_share, tail_bound, tail_rank, too_few_words


@pytest.mark.parametrize(("texts", "rank"), [(1, 0), (298, 0), (299, 1), (400, 1), (460, 1), (1200, 7)])
def test_the_rank_grows_with_the_texts(texts: int, rank: int) -> None:
    assert tail_rank(texts) == rank


def test_the_bound_holds_in_95_of_100_samples_and_is_not_the_largest_of_many() -> None:
    """Changes are uniform, so that 1 % of all texts exceed 0.99."""
    generator = np.random.default_rng(2)
    for texts in (299, 1200):
        bounds = np.asarray([tail_bound(generator.random(texts)) for _ in range(4000)])
        assert 0.94 < (bounds >= 0.99).mean() < 0.97
    changes = generator.random(1200)
    assert tail_bound(changes) == np.sort(changes)[-7]


def test_few_texts_give_their_largest_change_and_say_what_it_proves() -> None:
    changes = np.linspace(0, 0.5, 100)
    assert tail_bound(changes) == 0.5
    assert proven_share(100) == pytest.approx(0.0295, abs=1e-4)
    assert too_few_words(100) == (
        "the largest change of 100 texts, which at most 3 % of texts exceed with 95 % confidence; "
        "299 texts are needed for 1 %"
    )


def test_enough_texts_need_no_words() -> None:
    assert fewest_texts() == 299
    assert too_few_words(299) == ""
    assert proven_share(299) == 0.01


def test_a_change_that_is_no_number_keeps_to_no_limit() -> None:
    changes = np.zeros(1200)
    changes[5] = np.nan
    assert tail_bound(changes) == np.inf
