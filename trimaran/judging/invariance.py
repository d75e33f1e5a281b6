"""Batches that put each text beside other texts, to see whether its answer depends on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

from trimaran.core.proof_effort import USUAL, ProofEffort
from trimaran.runtime.text import MOST_PAIRS, Row, width_of

NEIGHBOURS = 31
LENGTHS = 4
# Kernels are chosen by the size of a call, so that many sizes and widths are tried, each with few tokens.
CALLS = 60


class Group(NamedTuple):
    """Rows to run in one call, padded to `length` at least; the first `len(indices)` are the texts under test."""

    indices: list[int]
    rows: list[Row]
    length: int = 0


def padded_groups(
    rows: Sequence[Row], *, size: int, seed: int, maximum: int, policy: str = "padded", effort: ProofEffort = USUAL
) -> Iterator[Group]:
    """Each sampled text in a batch of `size` drawn without regard to length, so that most are padded; then some of
    them again, padded to the maximum.
    """
    order = [int(index) for index in np.random.default_rng(seed).permutation(len(rows))[: effort.certificate_texts]]
    for start in range(0, len(order), size):
        indices = order[start : start + size]
        batch = [rows[index] for index in islice(cycle(indices + order), size)]
        yield Group(indices, batch, width_of(max(len(row.ids) for row in batch), policy))
    fully_padded = min(effort.fully_padded, len(order))
    for start in range(0, fully_padded, size):
        indices = order[start : min(start + size, fully_padded)]
        yield Group(indices, [rows[index] for index in indices], maximum)


def one_width_groups(
    rows: Sequence[Row],
    *,
    size: int,
    seed: int,
    maximum: int,
    policy: str = "equal-length",
    effort: ProofEffort = USUAL,
) -> Iterator[Group]:
    """Texts that a policy pads to one width in each batch, at widths spread over those that occur.

    Few texts share a width, so a batch is filled with other texts cut or repeated to lengths of it: as neighbours they
    are as strange as any, and only the texts under test are judged.
    """
    generator = np.random.default_rng(seed)
    by_width: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_width.setdefault(width_of(len(row.ids), policy), []).append(index)
    widths = sorted(by_width)
    last = len(widths) - 1
    for width in sorted({widths[round(step * last / (LENGTHS - 1))] for step in range(LENGTHS)}):
        indices = by_width[width][:size]
        lengths = cycle(length for length in range(width, 0, -1) if width_of(length, policy) == width)
        strange = generator.integers(len(rows), size=size - len(indices))
        strangers = [fitted(rows[index], min(next(lengths), maximum)) for index in strange]
        yield Group(indices, [*(rows[index] for index in indices), *strangers], width)


GROUPINGS: dict[str, Callable[..., Iterator[Group]]] = {
    "padded": padded_groups,
    "packed": partial(padded_groups, policy="packed"),
    "rounded": partial(one_width_groups, policy="rounded"),
    "equal-length": one_width_groups,
}


def certificate_groups(
    rows: Sequence[Row], policy: str, *, size: int, seed: int, maximum: int, effort: ProofEffort = USUAL
) -> Iterator[Group]:
    """At least `CALLS` calls, no two alike: full batches first, then sizes from 2 on at widths spread over all texts.

    Wide calls have few rows and narrow ones many, so that no call is dear. Few texts allow fewer calls.
    """
    known: set[tuple[tuple[int, ...], int, int]] = set()
    for whole in GROUPINGS[policy](rows, size=size, seed=seed, maximum=maximum, effort=effort):
        group = _as_served(whole)
        known.add((tuple(group.indices), len(group.rows), group.length))
        yield group
    generator = np.random.default_rng(seed + 1)
    by_length = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    for turn in range(CALLS if size > 1 else 0):
        if len(known) >= CALLS:
            break
        position = turn * len(rows) // CALLS
        # A static embedding has texts without any token.
        width = max(1, width_of(len(rows[by_length[position]].ids), policy))
        count = int(generator.integers(2, max(3, min(size, effort.call_tokens // width) + 1)))
        group = _as_served(_drawn_group(rows, by_length[: position + 1], policy, count, width, generator, maximum))
        call = tuple(group.indices), len(group.rows), group.length
        if call not in known:
            known.add(call)
            yield group


def _drawn_group(
    rows: Sequence[Row],
    shorter: Sequence[int],
    policy: str,
    count: int,
    width: int,
    generator: np.random.Generator,
    maximum: int,
) -> Group:
    """The longest of the texts among others that a policy lets share its call."""
    if policy in ("padded", "packed"):
        indices = [shorter[-1], *(int(shorter[drawn]) for drawn in generator.integers(len(shorter), size=count - 1))]
        return Group(indices, [rows[index] for index in indices], width)
    lengths = [length for length in range(min(width, maximum), 0, -1) if width_of(length, policy) == width]
    strangers = generator.integers(len(rows), size=count - 1)
    fillers = [fitted(rows[index], lengths[turn % len(lengths)]) for turn, index in enumerate(strangers)]
    return Group([shorter[-1]], [rows[shorter[-1]], *fillers], width)


def _as_served(group: Group) -> Group:
    """The group with no more rows than share a served call: eight rows of 8,192 tokens would need 26 GB for scores."""
    width = max(group.length, *(len(row.ids) for row in group.rows), 1)
    most = max(1, MOST_PAIRS // width**2)
    return Group(group.indices[:most], group.rows[:most], group.length)


def fitted(row: Row, length: int) -> Row:
    """The row cut, or repeated, to exactly this many tokens."""
    return Row(list(islice(cycle(row.ids), length)), list(islice(cycle(row.type_ids), length)))
