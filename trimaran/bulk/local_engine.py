"""Encodes chunks on the cores of this machine, in child processes that are replaced when they die."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from trimaran.bulk.child import EncodeChild
from trimaran.bulk.chunks import Chunk
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.run_folder import BulkSettings
from trimaran.core import isolation
from trimaran.core.artifact import Artifact, FileEntry
from trimaran.core.errors import ChildError

_OPEN_DEADLINE_S = 600.0
_CALL_DEADLINE_S = 600.0
_SLICE_S = 1.0
# While one chunk is encoded, the next is tokenised.
_CHUNKS_AHEAD = 2
_ATTEMPTS = 3


def encode_locally(
    artifact: Artifact,
    chunks: Iterable[Chunk],
    delivery: Delivery,
    *,
    settings: BulkSettings,
    workers: int,
    lanes: int,
    threads: int,
) -> None:
    """Encodes all chunks and delivers a part for each, in the order in which they are ready."""
    queue = _ChunkQueue(iter(chunks))
    child_threads = [_ChildThread(artifact, queue, delivery, settings, lanes, threads) for _ in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(thread.work) for thread in child_threads]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            queue.stop.set()


class _ChunkQueue:
    """The stream of chunks that all threads draw from."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._lock = threading.Lock()
        self.attempts: Counter[int] = Counter()  # children that died, by the index of a chunk that they held
        self.stop = threading.Event()

    def draw(self) -> Chunk | None:
        with self._lock:
            return None if self.stop.is_set() else next(self._chunks, None)


class _ChildThread:
    """A thread with a child process. When the child dies, a new one begins with the chunks of the old one."""

    def __init__(
        self,
        artifact: Artifact,
        queue: _ChunkQueue,
        delivery: Delivery,
        settings: BulkSettings,
        lanes: int,
        threads: int,
    ) -> None:
        self._queue, self._delivery, self._shape = queue, delivery, settings.shape.model_dump(mode="json")
        self._environment = {**artifact.execution_environment, "RAYON_NUM_THREADS": str(lanes * threads)}
        self._arguments: dict[str, Any] = {
            "directory": str(artifact.directory),
            "lanes": lanes,
            "threads": threads,
            "how": settings.how.model_dump(mode="json"),
        }
        self._held: deque[Chunk] = deque()

    def work(self) -> None:
        try:
            while True:
                try:
                    self._work_until_done()
                    return
                except ChildError as error:
                    self._count_attempt(error)
        except BaseException:  # the other threads stop too, whatever ended this one
            self._queue.stop.set()
            raise

    def _count_attempt(self, error: ChildError) -> None:
        """Raises the error if a chunk has killed its last child; a child without chunks counts as chunk -1."""
        for index in [chunk.index for chunk in self._held] or [-1]:
            self._queue.attempts[index] += 1
            if self._queue.attempts[index] >= _ATTEMPTS:
                raise error
        self._delivery.restarted(f"A worker died of {error.reason}; a new one continues with its part.")

    def _work_until_done(self) -> None:
        with isolation.Worker(environment=self._environment) as worker:
            child = worker.hold(EncodeChild, _OPEN_DEADLINE_S, **self._arguments)
            for chunk in self._held:
                self._submit(child, chunk)
            while True:
                while len(self._held) < _CHUNKS_AHEAD and (drawn := self._queue.draw()) is not None:
                    self._held.append(drawn)
                    self._submit(child, drawn)
                if not self._held or self._queue.stop.is_set():
                    return
                self._finish(child, self._held[0])
                self._held.popleft()

    def _submit(self, child: isolation.Held[EncodeChild], chunk: Chunk) -> None:
        child.call(EncodeChild.submit, _CALL_DEADLINE_S, key=str(chunk.index), texts=chunk.texts)

    def _finish(self, child: isolation.Held[EncodeChild], chunk: Chunk) -> None:
        """Waits for a chunk, has its part written and delivers it; returns early if the run stops."""
        key = str(chunk.index)
        while not self._queue.stop.is_set():
            state = child.call(EncodeChild.wait, _CALL_DEADLINE_S, key=key, timeout_s=_SLICE_S)
            self._delivery.meter.running(chunk.index, state["rows"], state["tokens"])
            if state["done"]:
                break
        else:
            return
        written = self._delivery.retry_while_disk_full(
            lambda: child.call(
                EncodeChild.write,
                _CALL_DEADLINE_S,
                key=key,
                index=chunk.index,
                rows=chunk.rows,
                ids=chunk.ids,
                parts=str(self._delivery.folder.parts),
                shape=self._shape,
            ),
            was_full=lambda answer: bool(answer["full"]),
        )
        self._delivery.deliver(
            chunk,
            files=[FileEntry.model_validate(entry) for entry in written["files"]],
            bad={int(index): reason for index, reason in written["bad"].items()},
            tokens=written["tokens"],
            cut=written["cut"],
        )
