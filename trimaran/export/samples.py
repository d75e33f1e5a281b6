"""Makes sample inputs with padding and uneven lengths: a mask of ones only would hide bugs."""

from __future__ import annotations

import numpy as np

from trimaran.core.families import family
from trimaran.core.spec import ModelRef, TokenizerSpec
from trimaran.runtime.text import Array


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
    """Rows of random tokens; their lengths go from `sequence` to a quarter of it. The second half is segment 1.

    `width` is the padded length, `sequence` if not given. The tokens do not depend on it.
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
        tokens = slice(width - length, width) if row.pad_side == "left" else slice(0, length)
        ids[index, tokens] = generator.integers(low, vocabulary, length)
        mask[index, tokens] = 1
        segments[index, tokens] = np.arange(length) > length // 2
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: arrays[name] for name in ref.inputs}
