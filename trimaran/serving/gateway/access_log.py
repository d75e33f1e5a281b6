"""The access log: one JSON line per request, without any text of a request or an answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from trimaran.serving.gateway.json_bytes import to_json


class AccessLog:
    """A full disk loses lines and counts them; it never fails a request."""

    def __init__(self, path: Path | None, *, on_lost_line: Callable[[], None]) -> None:
        self._path = path
        self._on_lost_line = on_lost_line
        self._stream: TextIO | None = None if path else sys.stderr

    def write(self, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = to_json({"time": now, **{key: value for key, value in facts.items() if value not in ("", None)}})
        try:
            if self._stream is None:
                assert self._path is not None
                self._stream = self._path.open("a", encoding="utf-8")
            self._stream.write(line.decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._on_lost_line()
            self.close()

    def close(self) -> None:
        if self._path and self._stream:
            stream, self._stream = self._stream, None
            try:
                stream.close()
            except OSError:
                self._on_lost_line()
