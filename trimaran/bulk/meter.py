"""Shows how far a run is: rows, rates and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from trimaran.core.progress import Step

_TICK_S = 0.5


class Meter:
    """Counts from many threads; one thread shows the counts. Rates leave out the parts of an earlier run."""

    def __init__(self, step: Step, *, total_bytes: int) -> None:
        """`total_bytes` is the size of the input, or 0 where it is unknown."""
        self._step = step
        self._total_bytes = total_bytes
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        self._running: dict[int, tuple[int, int]] = {}
        self._rows = self._tokens = self._reused = 0
        self._bytes = self._bytes_reused = 0

    def running(self, index: int, rows: int, tokens: int) -> None:
        """Rows and tokens so far of a part that is being encoded."""
        with self._lock:
            self._running[index] = (rows, tokens)

    def done(self, index: int, rows: int, tokens: int, size_bytes: int) -> None:
        with self._lock:
            self._running.pop(index, None)
            self._rows += rows
            self._tokens += tokens
            self._bytes += size_bytes

    def reused(self, rows: int, size_bytes: int) -> None:
        with self._lock:
            self._reused += rows
            self._bytes_reused += size_bytes

    @property
    def elapsed_s(self) -> float:
        return max(1e-9, time.monotonic() - self._begun_s)

    @property
    def rows(self) -> int:
        with self._lock:
            return self._rows + sum(rows for rows, _ in self._running.values())

    @property
    def tokens(self) -> int:
        with self._lock:
            return self._tokens + sum(tokens for _, tokens in self._running.values())

    def rates(self) -> str:
        return f"{self.rows / self.elapsed_s:,.0f} rows/s · {self.tokens / self.elapsed_s:,.0f} tokens/s"

    def summary(self) -> str:
        left_s = self.left_s()
        return self.rates() if left_s is None else f"{self.rates()} · {duration(left_s)} left"

    def left_s(self) -> float | None:
        """An estimate from the bytes of the input that are left; None before the first part is done."""
        to_read = self._total_bytes - self._bytes_reused
        if self._total_bytes <= 0 or to_read <= 0 or self._bytes <= 0:
            return None
        return max(0.0, (to_read - self._bytes) * self.elapsed_s / self._bytes)

    def total_rows(self) -> int | None:
        """An estimate from the rows so far and their share of the input's bytes."""
        rows, read = self._rows + self._reused, self._bytes + self._bytes_reused
        if self._total_bytes <= 0 or read <= 0:
            return None
        return max(rows, round(rows * self._total_bytes / read))

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Shows the counts twice a second until the block ends."""
        stop = threading.Event()

        def tick() -> None:
            while not stop.wait(_TICK_S):
                self._step.advance(self.rows + self._reused, self.total_rows(), self.summary())

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            stop.set()
            ticker.join()


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
