"""Vectors of texts that are longer than a model reads: the mean, or the maximum, over pieces that it reads whole.

A text that was cut is halved at a space near its middle, and so are its halves, until nothing is cut:

    "a b c d e f" (cut) -> "a b c", "d e f"

This needs no tokenizer, only to know which texts were cut, so clients of a server can do it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import numpy as np

from trimaran.core.choices import Overflow
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import Vectors
from trimaran.runtime.text import Text

OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)
_UNIT_TOLERANCE = 1e-3
_SPACE = re.compile(r"\s")


class Piece(NamedTuple):
    # The index of the text that it is a part of.
    owner: int
    text: str


class WholeTexts:
    """Splits texts until each piece is read whole, and joins the vectors of the pieces."""

    def __init__(self, texts: Sequence[Text], overflow: Overflow) -> None:
        if overflow not in OVERFLOWS:
            raise UsageError(f"There is no overflow {overflow!r}.", hint=f"Known: {', '.join(OVERFLOWS)}.")
        pairs = [text for text in texts if not isinstance(text, str)]
        if pairs:
            raise UsageError(f"overflow={overflow!r} is for single texts, not for pairs.")
        self._overflow, self._count = overflow, len(texts)
        # Pieces of which it is not known yet whether they are read whole.
        self.pending = [Piece(index, str(text)) for index, text in enumerate(texts)]
        # Pieces that are read whole.
        self.read: list[Piece] = []

    def split(self, cut: Sequence[bool]) -> list[int]:
        """Takes which pending pieces were cut; gives the indices of the others, which are now in `read`."""
        whole = [index for index, piece in enumerate(self.pending) if not cut[index] or len(piece.text) < 2]
        self.read += [self.pending[index] for index in whole]
        kept = set(whole)
        self.pending = [
            Piece(piece.owner, half)
            for index, piece in enumerate(self.pending)
            if index not in kept
            for half in halves(piece.text)
        ]
        return whole

    def joined(self, vectors: Vectors) -> Vectors:
        """One vector a text, from those of the pieces in `read`. Unit vectors give unit vectors.

        The mean counts every piece by its characters.
        """
        whole = np.zeros((self._count, vectors.shape[1]), np.float32)
        owners = np.asarray([piece.owner for piece in self.read])
        sizes = np.asarray([max(1, len(piece.text)) for piece in self.read], np.float32)
        units = bool(np.all(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT_TOLERANCE))
        for index in range(self._count):
            rows, weights = vectors[owners == index], sizes[owners == index]
            if len(rows) == 1:
                whole[index] = rows[0]
                continue
            pooled = rows.max(axis=0) if self._overflow == "windows-max" else np.average(rows, axis=0, weights=weights)
            whole[index] = pooled / max(float(np.linalg.norm(pooled)), 1e-12) if units else pooled
        return whole


def halves(text: str) -> tuple[str, str]:
    """Both halves of a text, split at the white space nearest to its middle, else in the middle."""
    middle = len(text) // 2
    space = _SPACE.search(text, middle)
    after = space.start() if space else len(text)
    # A text may have 200,000 characters without a space: a loop of Python over them would take too long.
    word = text[:middle].rsplit(None, 1)[-1:]
    before = middle - 1 if text[:middle][-1:].isspace() else max(0, middle - len(word[0]) - 1) if word else 0
    nearest = after if after - middle <= middle - before else before
    cut = nearest if 0 < nearest < len(text) - 1 else middle
    return text[:cut], text[cut:]


def pieces_by(cut: Callable[[Sequence[str]], Sequence[bool]], texts: Sequence[Text], overflow: Overflow) -> WholeTexts:
    """All pieces, where `cut(texts)` says of each text whether it would be cut, without a call of the model."""
    whole = WholeTexts(texts, overflow)
    while whole.pending:
        whole.split(cut([piece.text for piece in whole.pending]))
    return whole
