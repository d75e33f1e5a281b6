"""Texts of unlike lengths in one padded batch, and the claim that graphs which skip padding must keep for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

LENGTHS = (5, 31, 9, 16, 2, 17)
# Attention works on a multiple of as many tokens.
BLOCK = 16


def padded_inputs(names: Iterable[str], width: int = 32) -> dict[str, np.ndarray]:
    """Arrays for a graph's inputs: random ids, the mask of `LENGTHS`, and zeros for the others."""
    shown = (np.arange(width) < np.array(LENGTHS)[:, None]).astype(np.int64)
    others = {name: np.zeros_like(shown) for name in names}
    return {**others, "input_ids": np.random.default_rng(5).integers(2, 9, shown.shape), "attention_mask": shown}


def assert_padding_changes_nothing(packed: Any, plain: Any, inputs: dict[str, np.ndarray]) -> None:
    """The engines answer alike to the last bit, and the packed one gives each text alone what it gives all together."""
    together = packed.infer(inputs)
    for name, wanted in plain.infer(inputs).items():
        np.testing.assert_array_equal(together[name], wanted)
        for row, length in enumerate(LENGTHS):
            width = -(-length // BLOCK) * BLOCK
            alone = packed.infer({key: array[row : row + 1, :width] for key, array in inputs.items()})[name]
            np.testing.assert_allclose(alone[0], together[name][row], rtol=0, atol=1e-6)
