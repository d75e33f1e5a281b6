"""One JSON line a request, with nothing of what was asked or answered in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO


class AccessLog:
    """A disk that is full loses lines and counts them; it never fails a request."""

    def __init__(self, path: Path | None, *, lost: Callable[[], None]) -> None:
        self._path = path
        self._lost = lost
        self._stream: TextIO | None = None if path else sys.stderr

    def write(self, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **{key: value for key, value in facts.items() if value not in ("", None)}})
        try:
            stream = self._opened()
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            self._lost()
            self.close()

    def close(self) -> None:
        if self._path and self._stream:
            stream, self._stream = self._stream, None
            try:
                stream.close()
            except OSError:
                self._lost()

    def _opened(self) -> TextIO:
        if self._stream is None:
            assert self._path is not None
            self._stream = self._path.open("a", encoding="utf-8")
        return self._stream
