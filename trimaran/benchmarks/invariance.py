"""Batches that put each text among strangers, to see whether its answer depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from trimaran.runtime.text import Row

NEIGHBOURS = 31
# A certificate costs whole padded batches; this many texts keep it near a second on two cores.
TEXTS = 32
LENGTHS = 4
# Of those, as many are also padded to the longest sequence there is.
FULLY_PADDED = 8


class Group(NamedTuple):
    """Rows to run in one call, padded to `length` at least; the first `len(indices)` are the texts under test."""

    indices: list[int]
    rows: list[Row]
    length: int = 0


def padded_groups(rows: Sequence[Row], *, size: int, seed: int, maximum: int) -> Iterator[Group]:
    """Each sampled text in a batch of `size` drawn without regard to length, so that most are padded; then some of
    them again, padded to the maximum.
    """
    order = [int(index) for index in np.random.default_rng(seed).permutation(len(rows))[:TEXTS]]
    for start in range(0, len(order), size):
        indices = order[start : start + size]
        batch = list(islice(cycle(indices + order), size))
        yield Group(indices, [rows[index] for index in batch])
    for start in range(0, min(FULLY_PADDED, len(order)), size):
        indices = order[start : min(start + size, FULLY_PADDED)]
        yield Group(indices, [rows[index] for index in indices], maximum)


def equal_length_groups(rows: Sequence[Row], *, size: int, seed: int, maximum: int) -> Iterator[Group]:
    """Texts of one length in each batch, at lengths spread over those that occur.

    Few texts share a length, so a batch is filled with other texts cut or repeated to it: as neighbours they are
    as strange as any, and only the texts under test are judged.
    """
    generator = np.random.default_rng(seed)
    lengths = sorted({len(row.ids) for row in rows})
    last = len(lengths) - 1
    for length in sorted({lengths[round(step * last / (LENGTHS - 1))] for step in range(LENGTHS)}):
        indices = [index for index, row in enumerate(rows) if len(row.ids) == length][:size]
        strangers = [fitted(rows[index], length) for index in generator.integers(len(rows), size=size - len(indices))]
        yield Group(indices, [*(rows[index] for index in indices), *strangers])


def fitted(row: Row, length: int) -> Row:
    """The row cut, or repeated, to exactly this many tokens."""
    return Row(list(islice(cycle(row.ids), length)), list(islice(cycle(row.type_ids), length)))
