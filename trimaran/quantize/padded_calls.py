"""Calls with padding on which a packed graph is held against the plain one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimaran.quantize.int8.openvino_mask import MASK
from trimaran.runtime.text import Array

# Texts and tokens of the calls.
_SHAPES = ((1, 5), (2, 16), (5, 33))


class PaddedCall(NamedTuple):
    inputs: dict[str, Array]
    # The places that are no padding, [texts, tokens].
    shown: Array


def padded_calls(types: Mapping[str, Any]) -> Iterator[PaddedCall]:
    """Yield calls of texts of unlike length. `types` are those of the graph's inputs, by name."""
    generator = np.random.default_rng(0)
    for rows, tokens in _SHAPES:
        yield padded_call(types, [tokens, *generator.integers(1, tokens, rows - 1)], tokens, generator)


def padded_call(
    types: Mapping[str, Any], lengths: Sequence[int], width: int, generator: np.random.Generator
) -> PaddedCall:
    """Return a call of texts with these lengths in tokens, padded to the width."""
    shown = np.arange(width) < np.asarray(lengths)[:, None]
    inputs = {name: np.zeros(shown.shape, kind) for name, kind in types.items()}
    inputs["input_ids"] = generator.integers(2, 9, shown.shape).astype(types["input_ids"])
    return PaddedCall({**inputs, MASK: shown.astype(types[MASK])}, shown)


def agree_where_shown(
    calls: Sequence[PaddedCall],
    before: Sequence[Sequence[Array]],
    after: Sequence[Sequence[Array]],
    *,
    tolerance: float = 0.0,
) -> bool:
    """Whether both have the same outputs wherever there is no padding; without a tolerance, to the last bit.

    The tolerance is a share of the largest number of an output.
    """
    return all(
        _agree(*(_without_padding(array, call.shown) for array in pair), tolerance=tolerance)
        for call, plain, packed in zip(calls, before, after, strict=True)
        for pair in zip(plain, packed, strict=True)
    )


def _without_padding(array: Array, shown: Array) -> Array:
    return np.asarray(array[shown]) if array.shape[:2] == shown.shape else array


def _agree(plain: Array, packed: Array, *, tolerance: float) -> bool:
    if tolerance:
        room = tolerance * float(np.abs(plain).max(initial=0.0))
        return plain.shape == packed.shape and np.allclose(plain, packed, rtol=0, atol=room, equal_nan=True)
    return np.array_equal(plain, packed)
