"""Which rows of a request go through the engine together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_tokenizer
from trimaran.runtime.text import PACKED_STEP, STEP, TextEncoder, groups_of, width_of


@pytest.mark.parametrize("maximum", [4, 24, 32])
def test_calls_of_one_length_have_few_sizes(maximum: int) -> None:
    sizes = {len(call) for rows in range(1, 3 * maximum) for call in groups_of([7] * rows, "equal-length", maximum)}
    assert sizes == {maximum, *(1 << power for power in range(5) if 1 << power < maximum)}


def test_every_row_goes_through_once_with_its_equals() -> None:
    lengths = [5, 3, 5, 9, *[4] * 70, 5]
    calls = list(groups_of(lengths, "equal-length", 32))
    assert sorted(index for call in calls for index in call) == list(range(len(lengths)))
    assert all(len({lengths[index] for index in call}) == 1 for call in calls)
    assert [len(call) for call in calls] == [1, 32, 32, 4, 2, 2, 1, 1]


def test_rounded_rows_share_a_call_with_whoever_rounds_to_the_same_width() -> None:
    lengths = [5, 3, STEP, STEP + 1, 2 * STEP, *[3 * STEP - 1] * 11]
    calls = list(groups_of(lengths, "rounded", 32))
    assert sorted(index for call in calls for index in call) == list(range(len(lengths)))
    assert all(len({width_of(lengths[index], "rounded") for index in call}) == 1 for call in calls)
    assert [len(call) for call in calls] == [3, 2, 8, 3], "few rows at once, many in multiples of four"


def test_packed_rows_share_a_call_up_to_twice_the_places_of_the_shortest() -> None:
    lengths = [1, PACKED_STEP, 2 * PACKED_STEP, 2 * PACKED_STEP + 1, 6 * PACKED_STEP, 5, 3]
    assert list(groups_of(lengths, "packed", 32)) == [[0, 1, 5, 6, 2], [3, 4]]
    assert [len(call) for call in groups_of([7] * 70, "packed", 32)] == [32, 32, 6]


def test_a_width_depends_on_the_text_alone() -> None:
    assert [width_of(length, "rounded") for length in (1, STEP, STEP + 1)] == [STEP, STEP, 2 * STEP]
    assert [width_of(length, "packed") for length in (1, 16, 17)] == [16, 16, 32]
    assert [width_of(length, "equal-length") for length in (1, STEP, STEP + 1)] == [1, STEP, STEP + 1]


def test_rows_that_were_cut_are_noted_in_their_order(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path / "tokenizer.json")
    encoder = TextEncoder(str(tmp_path / "tokenizer.json"), inputs=("input_ids",), minimum=1, maximum=6, pad_id=0)
    with encoder.noting_truncated() as truncated:
        encoder.rows(["the cat", "the cat sat the cat sat", ("the cat", "sat ran good"), "cat"])
        encoder.pieces("the cat sat the cat sat", stride=1)
        encoder.pieces("the cat sat the cat sat")
        encoder.premise_rows("the cat sat the cat sat", ["dog", "dog ran"])
    assert truncated == [False, True, True, False, False, True, True, True]
    encoder.rows(["the cat sat the cat sat"])
    assert len(truncated) == 8


def test_the_tokens_of_each_row_are_noted_and_all_windows_of_a_text_are_one_row(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path / "tokenizer.json")
    encoder = TextEncoder(str(tmp_path / "tokenizer.json"), inputs=("input_ids",), minimum=1, maximum=6, pad_id=0)
    with encoder.noting_rows() as notes:
        rows = encoder.rows(["the cat", "the cat sat the cat sat", ("the", "cat")])
        windows = encoder.pieces("the cat sat the cat sat", stride=1)
    assert notes.tokens == [*(len(row.ids) for row in rows), sum(len(window.ids) for window in windows)]
    assert notes.tokens[:2] == [4, 6]
