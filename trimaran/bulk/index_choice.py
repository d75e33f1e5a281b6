"""Chooses the kind of Faiss index by the number of vectors and the memory, and says why."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

from trimaran.core.choices import IndexKind
from trimaran.core.spec import Frozen

INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
EXACT_LIMIT = 50_000
GRAPH_LIMIT = 2_000_000
LINKS = 32
# Faiss asks for at least this many training vectors for each list, and uses at most 256.
TRAINED_PER_LIST = 39
_NUMBERS_PER_CODE_BYTE = 4


class IndexChoice(Frozen):
    kind: IndexKind
    reason: str


_SIZES_BYTES: dict[IndexKind, Callable[[int, int], int]] = {
    "flat": lambda count, width: count * width * 4,
    "hnsw": lambda count, width: count * (width * 4 + 2 * LINKS * 4),
    "binary": lambda count, width: count * (width * 4 + width // 8),
    "ivf": lambda count, width: count * (width * 4 + 8) + lists_for(count) * width * 4,
    "ivfpq": lambda count, width: count * (code_bytes(width) + 8) + lists_for(count) * width * 4,
}


def choose_index(count: int, width: int, memory_bytes: int) -> IndexChoice:
    """The most exact kind that fits into half of the memory: building takes about twice what the index keeps."""
    sizes = {kind: size(count, width) for kind, size in _SIZES_BYTES.items()}
    half = memory_bytes // 2
    vectors, memory = f"{count:,} vectors of {width}", _readable(memory_bytes)
    kind: IndexKind
    if count <= EXACT_LIMIT and sizes["flat"] <= half:
        kind, reason = "flat", f"{vectors} are few enough (up to {EXACT_LIMIT:,}) for an exact search"
    elif count <= GRAPH_LIMIT and sizes["hnsw"] <= half:
        kind, reason = "hnsw", f"{vectors} and their graph ({_readable(sizes['hnsw'])}) fit into half of {memory}"
    elif sizes["ivf"] <= half:
        kind, reason = "ivf", f"{vectors} fit whole ({_readable(sizes['ivf'])}) into half of {memory}"
    else:
        whole, codes = _readable(sizes["ivf"]), _readable(sizes["ivfpq"])
        kind, reason = "ivfpq", f"{vectors} whole ({whole}) exceed half of {memory}, as codes they are {codes}"
    return IndexChoice(kind=kind, reason=reason)


def lists_for(count: int) -> int:
    """About 4 √n inverted lists, as long as each has enough vectors to be trained."""
    return max(1, min(round(4 * math.sqrt(count)), count // TRAINED_PER_LIST))


def code_bytes(width: int) -> int:
    """Bytes of a product-quantised vector: the largest divisor of the width up to a quarter of it."""
    most = max(1, width // _NUMBERS_PER_CODE_BYTE)
    return next(size for size in range(most, 0, -1) if width % size == 0)


def _readable(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.1f} MiB"
