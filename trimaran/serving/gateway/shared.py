"""What the workers of one gateway share: the rates of callers, and their metrics. Both lie in anonymous shared memory.

A lock on a part of the memory belongs to a process, and the kernel ends it with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trimaran.serving.gateway.admission import TokenBucket

# A caller's digest, the level of its bucket, and the moment at which it was seen.
_SLOT = struct.Struct("<Qdd")
_SLOTS = 1 << 14
# A caller has one of so many slots. Where all are taken, the caller not seen for longest is forgotten.
_PROBES = 8
_LENGTH = struct.Struct("<Q")
_PAGE_BYTES = 1 << 18


class SharedBuckets:
    """The buckets of all callers, for all workers: a rate holds exactly, whichever worker answers."""

    size_bytes = _SLOTS * _SLOT.size

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, self.size_bytes)

    def change(self, caller: str, step: Callable[[TokenBucket | None], TokenBucket]) -> None:
        # Zero marks a free slot.
        key = int.from_bytes(hashlib.blake2b(caller.encode(), digest_size=8).digest(), "little") or 1
        offsets = [(key + probe) % _SLOTS * _SLOT.size for probe in range(_PROBES)]
        with _locked(self._descriptor, 0, self.size_bytes):
            slots = {offset: _SLOT.unpack_from(self._memory, offset) for offset in offsets}
            known = next((offset for offset, slot in slots.items() if slot[0] == key), None)
            # A free slot was last seen at 0.
            offset = known if known is not None else min(offsets, key=lambda offset: slots[offset][2])
            bucket = step(TokenBucket(*slots[offset][1:]) if known is not None else None)
            _SLOT.pack_into(self._memory, offset, key, *bucket)


class SharedPages:
    """One page of text for each worker, which all of them can read."""

    def __init__(self, descriptor: int, workers: int, own: int) -> None:
        self._descriptor, self._workers, self._own = descriptor, workers, own
        self._memory = mmap.mmap(descriptor, workers * _PAGE_BYTES)

    @staticmethod
    def size_bytes(workers: int) -> int:
        return workers * _PAGE_BYTES

    def write(self, page: bytes) -> None:
        """Replaces this worker's page. A page that is too long ends at a line."""
        most = _PAGE_BYTES - _LENGTH.size
        if len(page) > most:
            page = page[: page.rindex(b"\n", 0, most) + 1]
        begin = self._own * _PAGE_BYTES
        with _locked(self._descriptor, begin, _PAGE_BYTES):
            _LENGTH.pack_into(self._memory, begin, len(page))
            self._memory[begin + _LENGTH.size : begin + _LENGTH.size + len(page)] = page

    def read(self) -> dict[int, bytes]:
        """The pages by the number of their worker."""
        pages = {}
        for worker in range(self._workers):
            begin = worker * _PAGE_BYTES
            with _locked(self._descriptor, begin, _PAGE_BYTES):
                [size] = _LENGTH.unpack_from(self._memory, begin)
                pages[worker] = self._memory[begin + _LENGTH.size : begin + _LENGTH.size + size]
        return pages


@dataclass(frozen=True)
class SharedState:
    buckets: SharedBuckets
    metrics: SharedPages


def shared_memory(name: str, size_bytes: int) -> int:
    """A descriptor that children inherit. Nothing is left of it when the last process ends."""
    descriptor = os.memfd_create(f"trimaran-{name}")
    os.truncate(descriptor, size_bytes)
    return descriptor


@contextlib.contextmanager
def _locked(descriptor: int, begin: int, size_bytes: int) -> Iterator[None]:
    fcntl.lockf(descriptor, fcntl.LOCK_EX, size_bytes, begin)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, size_bytes, begin)
