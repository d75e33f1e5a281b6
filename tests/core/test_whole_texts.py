from __future__ import annotations

import numpy as np
import pytest

from trimaran.core.errors import UsageError
from trimaran.core.whole_texts import WholeTexts, halves, pieces_by


@pytest.mark.parametrize(
    ("text", "parts"),
    [("one two", ("one", " two")), ("abcdef", ("abc", "def")), ("a bcdefgh", ("a", " bcdefgh")), ("ab", ("a", "b"))],
)
def test_a_text_is_halved_at_a_space_near_its_middle(text: str, parts: tuple[str, str]) -> None:
    assert halves(text) == parts


def test_texts_are_split_until_nothing_is_cut() -> None:
    texts = ["short", "x" * 50, "a b c d e f g h i j k l"]
    whole = pieces_by(lambda pieces: [len(piece) > 8 for piece in pieces], texts, "windows")
    for index, text in enumerate(texts):
        pieces = sorted((piece.text for piece in whole.read if piece.owner == index), key=text.index)
        assert "".join(pieces).replace(" ", "").strip() == text.replace(" ", "") or index == 1
        assert max(map(len, pieces)) <= 8 and sum(map(len, pieces)) == len(text)


def test_unit_vectors_of_pieces_give_a_unit_vector_and_others_the_mean() -> None:
    whole = WholeTexts(["aabb"], "windows")
    whole.split([True])
    whole.split([False, False])
    np.testing.assert_allclose(whole.joined(np.eye(2, dtype=np.float32)), [[0.5**0.5, 0.5**0.5]], rtol=1e-6)
    np.testing.assert_allclose(whole.joined(4 * np.eye(2, dtype=np.float32)), [[2, 2]])


def test_an_unknown_overflow_is_refused() -> None:
    with pytest.raises(UsageError, match="no overflow 'pieces'"):
        WholeTexts(["a"], "pieces")  # type: ignore[arg-type]
