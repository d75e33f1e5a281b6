"""Starts a process in a session of its own, which keeps one end of a pipe and writes to a log."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def spawn(
    command: Sequence[str],
    *,
    log_file: Path,
    keeps: int,
    other_end: int,
    inherits: tuple[int, ...] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """The process inherits the descriptor `keeps`, which is closed here. When it cannot start, `other_end` is too.

    What it `inherits` beside stays open here. A log file `-` is the output of this process.
    """
    to_own_output = str(log_file) == "-"
    try:
        if not to_own_output:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.nullcontext() if to_own_output else log_file.open("ab") as stream:
            return subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=None if to_own_output else subprocess.STDOUT,
                pass_fds=(keeps, *inherits),
                start_new_session=True,
            )
    except BaseException:
        os.close(other_end)
        raise
    finally:
        os.close(keeps)
