"""Groups texts of like length into batches, so that hardly any padding is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_MOST_ROWS, _MOST_TOKENS = 64, 2048
# Texts are sorted by length within windows of this size, so that batches differ from epoch to epoch.
_WINDOW = 64 * _MOST_ROWS


def by_length(lengths: Sequence[int]) -> list[list[int]]:
    """The indices of all texts in batches, shortest first."""
    return _batches(sorted(range(len(lengths)), key=lengths.__getitem__), lengths)


def shuffled(lengths: Sequence[int], seed: Sequence[int]) -> list[list[int]]:
    """The indices of all texts in batches that the seed decides, in random order."""
    generator = np.random.default_rng(list(seed))
    order = [int(index) for index in generator.permutation(len(lengths))]
    windows = (order[begin : begin + _WINDOW] for begin in range(0, len(order), _WINDOW))
    batches = [batch for window in windows for batch in _batches(sorted(window, key=lengths.__getitem__), lengths)]
    return [batches[index] for index in generator.permutation(len(batches))]


def _batches(order: Iterable[int], lengths: Sequence[int]) -> list[list[int]]:
    batches: list[list[int]] = []
    batch: list[int] = []
    for index in order:
        # In order of length, the text that comes last is the longest of its batch.
        if batch and (len(batch) == _MOST_ROWS or lengths[index] * (len(batch) + 1) > _MOST_TOKENS):
            batches.append(batch)
            batch = []
        batch.append(index)
    return [*batches, batch] if batch else batches
