"""Starts a process in a session of its own, which keeps one end of a pipe and writes to a log."""

from __future__ import annotations

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

    What it `inherits` beside stays open here.
    """
    log_file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log_file.open("ab") as stream:
            return subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                pass_fds=(keeps, *inherits),
                start_new_session=True,
            )
    except BaseException:
        os.close(other_end)
        raise
    finally:
        os.close(keeps)
