"""Which kind of Faiss index fits so many vectors and so much memory, and why."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from trimaran.core.spec import Frozen

IndexKind = Literal["flat", "ivf", "ivfpq", "hnsw"]
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
EXACT_LIMIT = 50_000
GRAPH_LIMIT = 2_000_000
LINKS = 32
# Faiss wants at least this many vectors to train each list, and no more than 256 help.
TRAINED_PER_LIST = 39
CODE_BYTES_PER_NUMBERS = 4


class IndexChoice(Frozen):
    type: IndexKind
    reason: str
    size_bytes: int


_SIZES: dict[IndexKind, Callable[[int, int], int]] = {
    "flat": lambda count, width: count * width * 4,
    "hnsw": lambda count, width: count * (width * 4 + 2 * LINKS * 4),
    "ivf": lambda count, width: count * (width * 4 + 8) + lists_for(count) * width * 4,
    "ivfpq": lambda count, width: count * (code_bytes(width) + 8) + lists_for(count) * width * 4,
}


def choose_index(count: int, width: int, memory_bytes: int, *, wanted: IndexKind | None = None) -> IndexChoice:
    """`memory_bytes` is what may be used; building takes about twice what the index keeps."""
    sizes = {name: size(count, width) for name, size in _SIZES.items()}
    if wanted is not None:
        return IndexChoice(type=wanted, reason=f"{wanted} was asked for", size_bytes=sizes[wanted])
    budget = memory_bytes // 2
    said = f"{count:,} vectors of {width}"
    kind: IndexKind
    if count <= EXACT_LIMIT and sizes["flat"] <= budget:
        kind, why = "flat", f"{said} are few enough (up to {EXACT_LIMIT:,}) for an exact search"
    elif count <= GRAPH_LIMIT and sizes["hnsw"] <= budget:
        kind, why = "hnsw", f"{said} and their graph ({_said(sizes['hnsw'])}) fit into half of {_said(memory_bytes)}"
    elif sizes["ivf"] <= budget:
        kind, why = "ivf", f"{said} fit whole ({_said(sizes['ivf'])}) into half of {_said(memory_bytes)}"
    else:
        kind = "ivfpq"
        why = (
            f"{said} whole ({_said(sizes['ivf'])}) exceed half of {_said(memory_bytes)}, "
            f"as codes they are {_said(sizes['ivfpq'])}"
        )
    return IndexChoice(type=kind, reason=why, size_bytes=sizes[kind])


def lists_for(count: int) -> int:
    """About 4 √n lists, as long as each has enough vectors to be trained by."""
    return max(1, min(round(4 * math.sqrt(count)), count // TRAINED_PER_LIST))


def code_bytes(width: int) -> int:
    """Bytes of a product-quantised vector: the largest divisor of the width up to a quarter of it."""
    wanted = max(1, width // CODE_BYTES_PER_NUMBERS)
    return next(size for size in range(wanted, 0, -1) if width % size == 0)


def _said(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.1f} MiB"
