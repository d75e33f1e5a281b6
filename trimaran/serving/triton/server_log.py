"""The log file of a Triton: a new one for each server, and the reason that it gives for a failure."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from trimaran.core.store import default_home

_KEPT_LOGS = 20
_TAIL_BYTES = 65536
_FAILURE = re.compile(
    r"failed to load '[^']*' version \d+: (?P<reason>.*)|^error: (?P<error>.*)|Poll failed (?P<poll>.*)"
)


def new_log() -> Path:
    """A new file in `logs` of the home. Only the last few files are kept there."""
    folder = default_home() / "logs"
    logs = sorted(folder.glob("triton-*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[: -_KEPT_LOGS + 1]:
        path.unlink(missing_ok=True)
    return folder / f"triton-{uuid.uuid4().hex[:12]}.log"


def lost_its_port(log_file: Path) -> bool:
    return "already in use" in _tail(log_file)


def reason_in(log_file: Path) -> str:
    """The lines of the log that say what went wrong, or else its last lines."""
    lines = _tail(log_file).splitlines()
    failures = [match.group(match.lastgroup or 0) for line in lines if (match := _FAILURE.search(line))]
    quoted = failures[:3] or [line.strip() for line in lines if line.strip()][-5:]
    return " | ".join(line.replace("\\n", " ").strip()[:400] for line in quoted) or "its log is empty."


def _tail(path: Path) -> str:
    return path.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace") if path.is_file() else ""
