"""From a worked chunk to a published part: the receipt, the count, and patience with a full disk."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trimaran.bulk.chunks import Chunk, Reject
from trimaran.bulk.meter import Meter
from trimaran.bulk.run_folder import PartReceipt, RunFolder
from trimaran.core.artifact import FileEntry
from trimaran.core.errors import ValidationError
from trimaran.core.progress import Progress
from trimaran.core.store import NO_SPACE, disk_full

Result = TypeVar("Result")
_RETRY_S = 1.0


@dataclass
class Delivery:
    """Where engines hand in parts. `receipts` are the slim ones of every part that is whole."""

    folder: RunFolder
    meter: Meter
    progress: Progress
    strict: bool
    disk_wait_s: float
    receipts: dict[int, PartReceipt] = field(default_factory=dict)
    known: Mapping[int, PartReceipt] = field(default_factory=dict)
    restarts: int = 0
    waits_for_disk: int = 0
    read_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wanted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks that no whole part stands for; those of an earlier run with the same input are kept."""
        for chunk in chunks:
            if not self.reused(chunk.index, chunk.digest, chunk.read_bytes):
                yield chunk

    def reused(self, index: int, digest: str, read_bytes: int) -> bool:
        known = self.known.get(index)
        if known is None or known.input_sha256 != digest:
            return False
        self.receipts[index] = known
        self.meter.reused(known.size, self._advanced(read_bytes))
        return True

    def deliver(
        self, chunk: Chunk, *, files: Sequence[FileEntry], bad: Mapping[int, str], tokens: int, cut: int
    ) -> None:
        """Publishes a part whose files lie there under temporary names."""
        late = [
            Reject(row=chunk.rows[i], file=chunk.places[i][0], line=chunk.places[i][1], reason=reason)
            for i, reason in bad.items()
        ]
        rejects = tuple(sorted([*chunk.rejects, *late], key=lambda reject: reject.row))
        receipt = PartReceipt(
            index=chunk.index,
            first_row=chunk.first_row,
            size=chunk.size,
            rows=chunk.size - len(rejects),
            input_sha256=chunk.digest,
            files=tuple(files),
            tokens=tokens,
            cut=cut,
            rejected=dict(Counter(reject.reason for reject in rejects)),
            rejects=rejects,
        )
        self.patiently(lambda: self.folder.publish(receipt))
        self.receipts[chunk.index] = receipt.slim
        self.meter.done(chunk.index, chunk.size, tokens, self._advanced(chunk.read_bytes))
        if self.strict and rejects:
            first = rejects[0]
            raise ValidationError(
                f"{first.file}, line {first.line}: {first.reason}.",
                hint="Mend it and run again with --resume, or leave --strict away.",
                file=first.file,
                line=first.line,
                reason=first.reason,
            )

    def patiently(self, action: Callable[[], Result], *, failed: Callable[[Result], bool] | None = None) -> Result:
        """Tries again while the disk is full, for as long as a person may need to free some space."""
        end_s = time.monotonic() + self.disk_wait_s
        told = False
        while True:
            reason: Any = None
            try:
                result = action()
                if failed is None or not failed(result):
                    return result
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                reason = error
            if time.monotonic() >= end_s:
                raise disk_full(self.folder.root) from reason
            if not told:
                told = True
                with self._lock:
                    self.waits_for_disk += 1
                self.progress.note(
                    f"{self.folder.root}: the disk is full; waiting up to {self.disk_wait_s:g} s for room."
                )
            time.sleep(_RETRY_S)

    def restarted(self, why: str) -> None:
        with self._lock:
            self.restarts += 1
        self.progress.note(why)

    def _advanced(self, read_bytes: int) -> int:
        """Bytes of the input that this part adds to those already counted; parts do not end in order."""
        with self._lock:
            new = max(0, read_bytes - self.read_bytes)
            self.read_bytes = max(self.read_bytes, read_bytes)
            return new
