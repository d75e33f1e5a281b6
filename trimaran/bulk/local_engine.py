"""All cores of this machine: child processes that work ahead of the one that reads, and die without taking it along."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from trimaran.bulk.child import Child
from trimaran.bulk.chunks import Chunk
from trimaran.bulk.delivery import Delivery
from trimaran.bulk.run_folder import Settings
from trimaran.core import isolation
from trimaran.core.artifact import Artifact, FileEntry
from trimaran.core.errors import ChildError

_OPEN_DEADLINE_S = 600.0
_CALL_DEADLINE_S = 600.0
_SLICE_S = 1.0
# While one chunk is worked on, the next is tokenised.
_AHEAD = 2
_ATTEMPTS = 3


def encode_locally(
    artifact: Artifact,
    chunks: Iterable[Chunk],
    delivery: Delivery,
    *,
    settings: Settings,
    workers: int,
    lanes: int,
    threads: int,
) -> None:
    """Works through all chunks and delivers a part for each, in whatever order they are ready."""
    shared = _Shared(iter(chunks))
    crew = [_Hand(artifact, shared, delivery, settings, lanes, threads) for _ in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(hand.work) for hand in crew]
        try:
            done, _ = wait(running, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        finally:
            shared.stop.set()


class _Shared:
    """The stream that all hands draw from."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._lock = threading.Lock()
        self.attempts: Counter[int] = Counter()
        self.stop = threading.Event()

    def draw(self) -> Chunk | None:
        with self._lock:
            return None if self.stop.is_set() else next(self._chunks, None)


class _Hand:
    """A thread with a child process. When the child dies, a new one begins with what the old one had."""

    def __init__(
        self, artifact: Artifact, shared: _Shared, delivery: Delivery, settings: Settings, lanes: int, threads: int
    ) -> None:
        self._shared, self._delivery = shared, delivery
        self._environment = {**artifact.execution_environment, "RAYON_NUM_THREADS": str(lanes * threads)}
        self._arguments: dict[str, Any] = {
            "directory": str(artifact.directory),
            "lanes": lanes,
            "threads": threads,
            "how": settings.how.model_dump(mode="json"),
            "shape": settings.shape.model_dump(mode="json"),
        }
        self._held: deque[Chunk] = deque()

    def work(self) -> None:
        try:
            while True:
                try:
                    self._work_until_done()
                    return
                except ChildError as error:
                    self._give_up_or_go_on(error)
        except BaseException:  # the other workers stop too, whatever ended this one
            self._shared.stop.set()
            raise

    def _give_up_or_go_on(self, error: ChildError) -> None:
        for chunk in self._held or [Chunk(-1, 0)]:
            self._shared.attempts[chunk.index] += 1
            if self._shared.attempts[chunk.index] >= _ATTEMPTS:
                raise error
        self._delivery.restarted(f"A worker died of {error.reason}; a new one goes on with its part.")

    def _work_until_done(self) -> None:
        with isolation.Worker(environment=self._environment) as worker:
            child = worker.hold(Child, _OPEN_DEADLINE_S, **self._arguments)
            for chunk in self._held:
                self._submit(child, chunk)
            while True:
                while len(self._held) < _AHEAD and (drawn := self._shared.draw()) is not None:
                    self._held.append(drawn)
                    self._submit(child, drawn)
                if not self._held or self._shared.stop.is_set():
                    return
                self._finish(child, self._held[0])
                self._held.popleft()

    def _submit(self, child: isolation.Held[Child], chunk: Chunk) -> None:
        child.call(Child.submit, _CALL_DEADLINE_S, key=str(chunk.index), texts=chunk.texts)

    def _finish(self, child: isolation.Held[Child], chunk: Chunk) -> None:
        key = str(chunk.index)
        while not self._shared.stop.is_set():
            state = child.call(Child.wait, _CALL_DEADLINE_S, key=key, timeout_s=_SLICE_S)
            self._delivery.meter.running(chunk.index, state["rows"], state["tokens"])
            if state["done"]:
                break
        else:
            return
        answer = self._delivery.patiently(
            lambda: child.call(
                Child.write,
                _CALL_DEADLINE_S,
                key=key,
                index=chunk.index,
                rows=chunk.rows,
                ids=chunk.ids,
                parts=str(self._delivery.folder.parts),
            ),
            failed=lambda found: bool(found["full"]),
        )
        self._delivery.deliver(
            chunk,
            files=[FileEntry.model_validate(entry) for entry in answer["files"]],
            bad={int(index): reason for index, reason in answer["bad"].items()},
            tokens=answer["tokens"],
            cut=answer["cut"],
        )
