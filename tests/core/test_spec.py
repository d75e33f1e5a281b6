from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.core.errors import SignatureError, UsageError
from trimaran.core.spec import Range, ShapeProfile, Signature, TensorSpec

SIGNATURE = Signature(
    inputs=(TensorSpec(name="ids", dtype="int64", dims=("batch", "sequence")),),
    outputs=(TensorSpec(name="vector", dtype="float32", dims=("batch", 3)),),
)
IDS = np.zeros((2, 5), np.int64)


def test_matching_outputs_are_accepted() -> None:
    SIGNATURE.check_outputs({"ids": IDS}, {"vector": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({"other": np.zeros((2, 3), np.float32)}, "output names: wanted ['vector'], found ['other']"),
        ({"vector": np.zeros((2, 3), np.float64)}, "wanted dtype float32, found float64"),
        ({"vector": np.zeros((2, 3, 1), np.float32)}, "found 3 axes"),
        ({"vector": np.zeros((2, 4), np.float32)}, "axis 3 wanted 3, found 4"),
        ({"vector": np.zeros((1, 3), np.float32)}, "axis 'batch' wanted 2, found 1"),
    ],
)
def test_a_wrong_output_is_named(outputs: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(SignatureError) as caught:
        SIGNATURE.check_outputs({"ids": IDS}, outputs)
    assert words in str(caught.value)


@pytest.mark.parametrize("values", [(2, 1, 3), (0, 1, 2), (1, 5, 4), (-1, 1, 1)])
def test_a_range_out_of_order_is_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError, match="minimum <= typical <= maximum"):
        Range.of(values)


@given(st.lists(st.integers(1, 64), min_size=6, max_size=6))
def test_corners_are_distinct_and_inside_the_profile(numbers: list[int]) -> None:
    batch, sequence = Range.of(sorted(numbers[:3])), Range.of(sorted(numbers[3:]))
    corners = ShapeProfile(batch=batch, sequence=sequence).corners()
    assert len(set(corners)) == len(corners)
    assert all(batch.minimum <= b <= batch.maximum and sequence.minimum <= s <= sequence.maximum for b, s in corners)
    assert (batch.maximum, sequence.maximum) in corners
