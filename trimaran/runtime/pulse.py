"""A stage's sign of life for whoever looks after its process: when it last moved, and whether it is at work.

Answers do not tell: where two stages share the work, the one that hangs is hidden behind the other's answers.
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

# The folder for such signs, one file a process; where the environment names none, none is given.
FOLDER = "TRIMARAN_PULSES"
_BEAT_S = 0.25
# When it moved, by the clock that all processes of a machine share, and whether it is at work.
_LAYOUT = struct.Struct("=dd")


class Pulse:
    """At rest it beats by itself; at work it moves with each call of the engine only."""

    def __init__(self) -> None:
        self._sign: mmap.mmap | bytearray = bytearray(_LAYOUT.size)
        self._working = False
        folder = os.environ.get(FOLDER)
        if folder:
            with (Path(folder) / str(os.getpid())).open("w+b") as file:
                file.truncate(_LAYOUT.size)
                self._sign = mmap.mmap(file.fileno(), _LAYOUT.size)
            self._move()
            threading.Thread(target=self._beat, daemon=True).start()

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
        """The same call, which shows that it came and went."""

        def moving(asked: Any) -> Any:
            self._move()
            found = call(asked)
            self._move()
            return found

        return moving

    def _beat(self) -> None:
        while True:
            time.sleep(_BEAT_S)
            if not self._working:
                self._move()

    def _move(self) -> None:
        _LAYOUT.pack_into(self._sign, 0, time.monotonic(), self._working)


class Sign(NamedTuple):
    moved_s: float
    working: bool


def sign_of(folder: Path, pid: int) -> Sign | None:
    """What the process last gave; None where it gives none."""
    try:
        moved_s, working = _LAYOUT.unpack((folder / str(pid)).read_bytes())
    except (OSError, struct.error):
        return None
    return Sign(moved_s, bool(working))
