from __future__ import annotations

import pytest

from trimaran.bulk.index_choice import choose_index, code_bytes, lists_for

GIB = 1 << 30


@pytest.mark.parametrize(
    ("count", "memory", "kind", "words"),
    [
        (10_000, 16 * GIB, "flat", "few enough"),
        (1_000_000, 16 * GIB, "hnsw", "their graph (1.7 GiB) fit into half of 16.0 GiB"),
        (5_000_000, 32 * GIB, "ivf", "fit whole"),
        (5_000_000, 8 * GIB, "ivfpq", "exceed half of 8.0 GiB, as codes they are"),
        (10_000, GIB // 100, "ivfpq", "exceed half"),
    ],
)
def test_the_type_follows_count_and_memory_and_says_why(count: int, memory: int, kind: str, words: str) -> None:
    choice = choose_index(count, 384, memory)
    assert choice.kind == kind
    assert words in choice.reason


def test_lists_have_enough_vectors_and_codes_divide_the_width() -> None:
    assert lists_for(30) == 1
    assert lists_for(1_000_000) == 4000
    assert all(count // lists_for(count) >= 39 for count in (100, 1000, 20_000))
    assert (code_bytes(384), code_bytes(100), code_bytes(7)) == (96, 25, 1)
