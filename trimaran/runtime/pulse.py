"""The sign of life of a stage's process: when it last moved, and whether it is working.

Answers are not enough: where two stages share the work, one that hangs is hidden behind the answers of the other.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# The variable that names the folder of the signs, one file a process; without it none is given.
FOLDER = "TRIMARAN_PULSES"
_BEAT_S = 0.25
# When the process moved, by the clock that all processes of a machine share, and whether it is working.
_LAYOUT = struct.Struct("=dd")


class Pulse:
    """At rest it beats by itself. While working it moves only with each call of the engine."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic, beat_s: float = _BEAT_S) -> None:
        self._sign: mmap.mmap | bytearray = bytearray(_LAYOUT.size)
        self._working = False
        self._now_s, self._beat_s = now_s, beat_s
        folder = os.environ.get(FOLDER)
        if folder:
            with (Path(folder) / str(os.getpid())).open("w+b") as file:
                file.truncate(_LAYOUT.size)
                self._sign = mmap.mmap(file.fileno(), _LAYOUT.size)
            self._move()
            threading.Thread(target=self._keep_beating, daemon=True).start()

    @contextmanager
    def working(self) -> Iterator[None]:
        self._working = True
        self._move()
        try:
            yield
        finally:
            self._working = False
            self._move()

    def through(self, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same call, which moves the sign before and after."""

        def moving(request: Any) -> Any:
            self._move()
            answer = call(request)
            self._move()
            return answer

        return moving

    def beat(self) -> None:
        """Moves the sign unless the stage is working: a call that never ends must not look alive."""
        if not self._working:
            self._move()

    def _keep_beating(self) -> None:
        while True:
            time.sleep(self._beat_s)
            self.beat()

    def _move(self) -> None:
        _LAYOUT.pack_into(self._sign, 0, self._now_s(), self._working)


class Sign(NamedTuple):
    moved_s: float
    working: bool


def sign_of(folder: Path, pid: int) -> Sign | None:
    """The last sign of the process; None where it gives none."""
    try:
        moved_s, working = _LAYOUT.unpack((folder / str(pid)).read_bytes())
    except (OSError, struct.error):
        return None
    return Sign(moved_s, bool(working))
