"""Queries and documents are cut and filled up as their side says, in the order in which they came."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import tiny_tokenizer
from trimaran.runtime.sides import side_of
from trimaran.runtime.text import TextEncoder

EXPANSION = 1
SIDES = {
    "query": {"maximum": 5, "width": 5},
    "document": {"maximum": 4, "width": 0},
    "expansion_id": EXPANSION,
}


@pytest.fixture
def encoder(tmp_path: Path) -> TextEncoder:
    tiny_tokenizer(tmp_path / "tokenizer.json")
    return TextEncoder(
        str(tmp_path / "tokenizer.json"),
        inputs=("input_ids", "attention_mask"),
        minimum=1,
        maximum=16,
        pad_id=0,
        prompts={"query": "good ", "document": "bad "},
        default_prompt="document",
        sides=SIDES,
    )


def test_a_query_is_filled_up_and_a_document_is_not(encoder: TextEncoder) -> None:
    (query,), (document,) = encoder.rows(["cat"], prompt="query"), encoder.rows(["cat"])
    assert list(query.ids) == [2, 9, 5, 3, EXPANSION]
    assert list(document.ids) == [2, 10, 5, 3]
    assert encoder.batch([query])["attention_mask"].tolist() == [[1, 1, 1, 1, 1]]


def test_each_side_is_cut_at_its_own_length_and_the_cut_is_noted(encoder: TextEncoder) -> None:
    with encoder.noting_rows() as notes:
        (query,) = encoder.rows(["cat dog sat ran"], prompt="query")
        (document,) = encoder.rows(["cat dog sat ran"], prompt="document")
        encoder.rows(["cat"])
    assert (len(query.ids), len(document.ids)) == (5, 4)
    assert notes.truncated == [True, True, False]
    assert len(encoder.pieces("cat dog sat ran")[0].ids) == 6, "the length of a side is no lasting setting"


def test_texts_of_both_sides_keep_their_order(encoder: TextEncoder) -> None:
    rows = encoder.rows([("cat", "query"), "dog", ("dog", "query"), "cat"])
    assert [row.ids[2] for row in rows] == [5, 6, 6, 5]
    assert [len(row.ids) for row in rows] == [5, 4, 5, 4]


def test_an_unknown_prompt_is_refused(encoder: TextEncoder) -> None:
    with pytest.raises(ValueError, match="Unknown prompt 'passage'"):
        encoder.rows(["cat"], prompt="passage")


def test_whatever_is_no_query_is_a_document() -> None:
    assert [side_of(name) for name in ("query", "document", "passage", None)] == ["query", *["document"] * 3]
