"""Several gateway processes on one port. The first process listens, starts the workers and replaces those that die.

Every worker has a listening socket of its own (SO_REUSEPORT), between which the kernel divides connections. The first
process holds all sockets open: connections to a dead worker wait for its successor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

from trimaran.core.errors import ToolError, UsageError
from trimaran.core.isolation import die_with_parent
from trimaran.serving.gateway.settings import GatewaySettings
from trimaran.serving.gateway.shared import SharedBuckets, SharedPages, SharedState, shared_memory

_READY_S = 60.0
_POLL_S = 0.1
# A worker that dies this soon after its start is not started again at once.
_SHORT_LIFE_S = 2.0
# Beyond the time in which a worker answers the requests in flight.
_END_S = 10.0
log = logging.getLogger(__name__)


def share_of(settings: GatewaySettings) -> GatewaySettings:
    """The settings of one worker. Rates hold for all workers together; these limits are divided between them.

    Raises UsageError if a share would be too small for one request.
    """
    workers, limits = settings.workers, settings.limits
    if limits.all_bodies_bytes // workers < limits.body_bytes:
        raise UsageError(
            f"{workers} workers share {limits.all_bodies_bytes:,} bytes for all bodies, and one body may have "
            f"{limits.body_bytes:,}.",
            hint="Give a larger --max-bodies, a smaller --max-body, or fewer --workers.",
        )
    if settings.in_flight < workers or limits.connections < workers:
        raise UsageError(
            f"{workers} workers share {settings.in_flight} texts in flight and {limits.connections} connections.",
            hint="Give at least one to each: a larger --in-flight or --max-connections, or fewer --workers.",
        )
    shares = {"all_bodies_bytes": limits.all_bodies_bytes // workers, "connections": limits.connections // workers}
    return settings.model_copy(
        update={
            "in_flight": settings.in_flight // workers,
            "queue": -(-settings.queue // workers),
            "limits": limits.model_copy(update=shares),
        }
    )


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    began_s: float


class Workers:
    """The worker processes, by their number."""

    def __init__(self, settings: GatewaySettings, listeners: Sequence[socket.socket]) -> None:
        self._settings = share_of(settings)
        self._listeners = listeners
        self._buckets = shared_memory("buckets", SharedBuckets.size_bytes)
        self._pages = shared_memory("metrics", SharedPages.size_bytes(len(listeners)))
        self._workers: dict[int, _Worker] = {}

    def start(self) -> None:
        """Returns when all of them listen. Raises ToolError if one ends instead."""
        ready = [self._start(number) for number in range(len(self._listeners))]
        try:
            end_s = time.monotonic() + _READY_S
            for number, descriptor in enumerate(ready):
                readable = select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))[0]
                if not readable or not os.read(descriptor, 1):
                    raise ToolError(f"Worker {number} of the gateway did not start.", hint="Its reason is above.")
        finally:
            for descriptor in ready:
                os.close(descriptor)

    def replace_dead(self) -> None:
        for number, worker in self._workers.items():
            lived_s = time.monotonic() - worker.began_s
            if worker.process.poll() is not None and lived_s > _SHORT_LIFE_S:
                log.warning("Worker %d ended with %s and is replaced", number, worker.process.returncode)
                os.close(self._start(number))

    def end(self) -> None:
        """Each answers the requests in flight. One that takes too long is killed."""
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()
        end_s = time.monotonic() + self._settings.timeouts.drain_s + _END_S
        for worker in self._workers.values():
            try:
                worker.process.wait(timeout=max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        os.close(self._buckets)
        os.close(self._pages)

    def _start(self, number: int) -> int:
        """Returns a descriptor that gives one byte when the worker listens."""
        ready, written = os.pipe()
        descriptors = (self._listeners[number].fileno(), self._buckets, self._pages, written)
        numbers = [str(value) for value in (number, len(self._listeners), *descriptors)]
        process = subprocess.Popen(
            [sys.executable, "-m", "trimaran.serving.gateway.workers", *numbers],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
        )
        os.close(written)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            stream.write(self._settings.model_dump_json().encode())
        self._workers[number] = _Worker(process, time.monotonic())
        return ready


def supervise(
    settings: GatewaySettings, listeners: Sequence[socket.socket], *, on_ready: Callable[[int], None]
) -> None:
    """Blocks until SIGINT or SIGTERM. `on_ready` gets the port."""
    workers = Workers(settings, listeners)
    with _noticing_signals() as is_over:
        try:
            workers.start()
            on_ready(listeners[0].getsockname()[1])
            while not is_over():
                time.sleep(_POLL_S)
                workers.replace_dead()
        finally:
            workers.end()


@contextlib.contextmanager
def _noticing_signals() -> Iterator[Callable[[], bool]]:
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """One worker: its settings come on standard input, its number and descriptors as arguments."""
    from trimaran.serving.gateway.server import run

    number, workers, listener, buckets, pages, ready = map(int, sys.argv[1:7])
    die_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    settings = GatewaySettings.model_validate_json(sys.stdin.buffer.read())
    state = SharedState(SharedBuckets(buckets), SharedPages(pages, workers, number))

    def announce(port: int) -> None:
        # Nobody waits for a worker that takes the place of a dead one.
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, b"1")
        os.close(ready)

    run(settings, socket.socket(fileno=listener), shared=state, on_ready=announce)


if __name__ == "__main__":
    main()
