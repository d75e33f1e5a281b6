"""Temporary folders and logs that name their owner: those of killed processes are removed at the next start.

The name holds the number of the process. A lock tells other containers, which do not see that process, that it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import tempfile
import time
import weakref
from pathlib import Path

_PREFIX = "trimaran-"
_NAME = re.compile(rf"{_PREFIX}[a-z]+-(?P<process>\d+)-\w+(?P<log>\.log)?")
# A log is kept when its process failed, and somebody was told where it is.
_LOG_KEPT_S = 24 * 3600.0


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A `TemporaryDirectory` that is also removed when its process is killed, by the next one that makes such a folder.

    `purpose` is one word that tells people what it is for.
    """

    def __init__(self, purpose: str) -> None:
        sweep_once()
        super().__init__(prefix=f"{_PREFIX}{purpose}-{os.getpid()}-")
        lock = os.open(self.name, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._unlock = weakref.finalize(self, os.close, lock)

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()


def scratch_log() -> Path:
    """A new empty file. Whoever opens it for a child locks it, so that it stays while the child lives."""
    sweep_once()
    descriptor, name = tempfile.mkstemp(prefix=f"{_PREFIX}log-{os.getpid()}-", suffix=".log")
    os.close(descriptor)
    return Path(name)


@functools.cache
def sweep_once() -> None:
    sweep()


def sweep() -> None:
    """Removes what killed processes of this user left in the temporary folder."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        named = _NAME.fullmatch(path.name)
        if named is None or Path(f"/proc/{named['process']}").exists():
            continue
        # BlockingIOError: it is in use. Others: it is gone already, or belongs to another user.
        with contextlib.suppress(OSError):
            facts = path.lstat()
            is_kept = bool(named["log"]) and time.time() - facts.st_mtime < _LOG_KEPT_S
            if facts.st_uid == os.getuid() and not is_kept:
                _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    finally:
        os.close(descriptor)
