"""Proofs of long texts fit into the memory, and say with how many rows they were made."""

from __future__ import annotations

import pytest

from trimaran.core.call_memory import ModelSize, call_bytes, proof_shapes
from trimaran.core.errors import UsageError
from trimaran.core.spec import Range, ShapeProfile
from trimaran.runtime.text import MOST_PAIRS, groups_of

BASE = ModelSize(heads=12, hidden=768)
LONG = ShapeProfile(batch=Range(minimum=1, typical=1, maximum=32), sequence=Range(minimum=1, typical=128, maximum=8192))
GB = 1_000_000_000


def test_corners_have_as_many_rows_as_fit_and_the_proof_says_so() -> None:
    found = proof_shapes(BASE, LONG, 12 * GB)
    assert (1, 8192) in found.shapes and (32, 8192) not in found.shapes and (32, 128) in found.shapes
    assert found.reduced == "32x8192 with 1 rows, for 12.0 GB of memory"
    assert all(call_bytes(BASE, *shape) <= 12 * GB for shape in found.shapes)
    short = ShapeProfile()
    assert proof_shapes(BASE, short, 12 * GB) == (short.corners(), "")


def test_corners_of_a_large_model_have_few_rows_to_save_time() -> None:
    profile = ShapeProfile()
    found = proof_shapes(BASE, profile, 12 * GB, most_tokens=2048)
    assert all(rows * sequence <= max(2048, sequence) for rows, sequence in found.shapes)
    assert {sequence for _, sequence in found.shapes} == {sequence for _, sequence in profile.corners()}
    assert found.reduced.endswith("for the size of the model")


def test_a_text_that_does_not_fit_is_refused_with_the_length_that_does() -> None:
    with pytest.raises(
        UsageError, match=r"One text of 8,192 tokens takes about 10\.1 GB; 4\.0 GB may be used"
    ) as error:
        proof_shapes(BASE, LONG, 4 * GB)
    assert "maximum of 4,096" in error.value.hint


@pytest.mark.parametrize(("length", "rows"), [(512, 64), (2048, 4), (8192, 1)])
def test_a_call_has_few_long_texts(length: int, rows: int) -> None:
    groups = list(groups_of([length] * 64, "padded", 64))
    assert {len(group) for group in groups} == {rows} and rows * length**2 <= max(MOST_PAIRS, length**2)
