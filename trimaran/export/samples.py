"""Sample inputs for the corners of a profile, with real padding and uneven lengths: an all-ones mask hides bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.families import family
from trimaran.core.spec import ModelRef, TokenizerSpec

Array = npt.NDArray[Any]


def sample_inputs(
    ref: ModelRef,
    tokenizer: TokenizerSpec,
    batch: int,
    sequence: int,
    *,
    vocabulary: int,
    seed: int = 0,
    width: int | None = None,
) -> dict[str, Array]:
    """Rows of different lengths from full to a quarter; the second half of each row is a second segment.

    The rows are the same whatever `width` they are padded to, `sequence` at least.
    """
    generator = np.random.default_rng([seed, batch, sequence])
    row = family(ref.family)
    width = width or sequence
    lengths = [max(1, sequence - (index * sequence * 3) // (4 * max(1, batch - 1))) for index in range(batch)]
    low = min(max(tokenizer.pad_id + 1, 4), vocabulary - 1)
    ids = np.full((batch, width), tokenizer.pad_id, np.int64)
    mask = np.zeros((batch, width), np.int64)
    segments = np.full((batch, width), tokenizer.pad_type_id, np.int64)
    for index, length in enumerate(lengths):
        place = slice(width - length, width) if row.pad_side == "left" else slice(0, length)
        ids[index, place] = generator.integers(low, vocabulary, length)
        mask[index, place] = 1
        segments[index, place] = np.arange(length) > length // 2
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: arrays[name] for name in (ref.inputs or row.inputs)}
