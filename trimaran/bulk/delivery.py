"""Publishes parts: writes the receipt, counts the rows, and waits while the disk is full."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from trimaran.bulk.chunks import Chunk
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
    """Takes finished parts from the engines. Safe to call from several threads."""

    folder: RunFolder
    meter: Meter
    progress: Progress
    strict: bool  # stop at the first part with a rejected row
    disk_wait_s: float
    earlier: Mapping[int, PartReceipt]  # whole parts of an earlier run, by index
    receipts: dict[int, PartReceipt] = field(default_factory=dict)  # whole parts of this run, without single rejects
    restarts: int = 0
    waits_for_disk: int = 0
    read_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def missing(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks whose part an earlier run has not left whole."""
        for chunk in chunks:
            if not self.reuse(chunk.index, chunk.digest, chunk.read_bytes):
                yield chunk

    def reuse(self, index: int, digest: str, read_bytes: int) -> bool:
        """Keeps a part of an earlier run if it was made from the same input. Returns whether it was."""
        receipt = self.earlier.get(index)
        if receipt is None or receipt.input_sha256 != digest:
            return False
        self.receipts[index] = receipt
        self.meter.reused(receipt.size, self._newly_read(read_bytes))
        return True

    def deliver(
        self, chunk: Chunk, *, files: Sequence[FileEntry], bad: Mapping[int, str], tokens: int, cut: int
    ) -> None:
        """Publishes a part whose files are there under temporary names. `bad` are rows that the worker rejected."""
        late = [chunk.reject(index, reason) for index, reason in bad.items()]
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
        self.retry_while_disk_full(lambda: self.folder.publish(receipt))
        self.receipts[chunk.index] = receipt.slim
        self.meter.done(chunk.index, chunk.size, tokens, self._newly_read(chunk.read_bytes))
        if self.strict and rejects:
            first = rejects[0]
            raise ValidationError(
                f"{first.file}, line {first.line}: {first.reason}.",
                hint="Correct it and run again with --resume, or leave out --strict.",
                file=first.file,
                line=first.line,
                reason=first.reason,
            )

    def retry_while_disk_full(
        self, action: Callable[[], Result], *, was_full: Callable[[Result], bool] = lambda _: False
    ) -> Result:
        """Repeats the action for up to `disk_wait_s`, so that somebody can free some space.

        The action reports a full disk by an OSError, or by a result for which `was_full` is true.
        """
        end_s = time.monotonic() + self.disk_wait_s
        waiting = False
        while True:
            cause: OSError | None = None
            try:
                result = action()
                if not was_full(result):
                    return result
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                cause = error
            if time.monotonic() >= end_s:
                raise disk_full(self.folder.root) from cause
            if not waiting:
                waiting = True
                with self._lock:
                    self.waits_for_disk += 1
                self.progress.note(
                    f"{self.folder.root}: the disk is full; waiting up to {self.disk_wait_s:g} s for space."
                )
            time.sleep(_RETRY_S)

    def restarted(self, reason: str) -> None:
        with self._lock:
            self.restarts += 1
        self.progress.note(reason)

    def _newly_read(self, read_bytes: int) -> int:
        """Bytes of the input that this part adds to the count; parts do not end in order."""
        with self._lock:
            new = max(0, read_bytes - self.read_bytes)
            self.read_bytes = max(self.read_bytes, read_bytes)
            return new
