"""Same numbers up to float noise: padding is nobody's answer, and ids are compared by what their scores tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.errors import ParityError
from trimaran.judging.equality import worst_difference

MASK = {"attention_mask": np.array([[1, 1, 0]])}
SCORES = np.array([[[0.5, 0.3, 0.2], [0.4, 0.4, 0.1], [0.9, 0.1, 0.0]]], np.float32)
IDS = np.array([[[7, 5, 2], [4, 9, 1], [3, 3, 3]]])


def difference(ids: np.ndarray, scores: np.ndarray = SCORES) -> float:
    wanted = {"token_scores": SCORES, "token_ids": IDS}
    return worst_difference(MASK, wanted, {"token_scores": scores, "token_ids": ids}, 1e-5, "eager")


def changed(place: tuple[int, ...], value: int) -> np.ndarray:
    ids = IDS.copy()
    ids[place] = value
    return ids


def test_equal_rankings_are_equal_and_padding_is_not_looked_at() -> None:
    assert difference(IDS) == 0
    assert difference(changed((0, 2, 0), 99)) == 0


def test_tied_tokens_may_swap_and_the_last_may_give_way_to_one_outside() -> None:
    swapped = IDS.copy()
    swapped[0, 1, :2] = [9, 4]
    assert difference(swapped) == 0
    assert difference(changed((0, 0, 2), 6)) == 0


def test_tokens_that_their_scores_tell_apart_may_not() -> None:
    with pytest.raises(ParityError, match=r"token_ids differs from eager by inf at 1x3"):
        difference(changed((0, 0, 0), 6))


def test_scores_beyond_the_limit_are_named_with_the_number() -> None:
    with pytest.raises(ParityError, match=r"token_scores differs from eager by 0\.001 at 1x3; the limit is 1e-05"):
        difference(IDS, SCORES + np.float32(1e-3))
