"""Runs one command, and ends it with everything it started when the owner goes away.

It is run as a script and imports only the standard library. The lifeline is the read end of a pipe, which closes when
the owner closes it or dies. The command then gets SIGTERM and some time, and is killed afterwards. Its process group,
its shared memory and its working folder are removed with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108


def keep(lifeline: int, *, patience_s: float, shm_prefix: str, folder: Path, command: list[str]) -> int:
    """Returns the command's exit status when everything that it left is removed."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Orphaned grandchildren become children of this process, so that they can be waited for.
    _prctl(_SET_CHILD_SUBREAPER, 1)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  (this process has one thread)
    )
    ended = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([ended, lifeline, woken], [], [])
        if ended not in ready:
            os.kill(process.pid, signal.SIGTERM)
            select.select([ended], [], [], patience_s)
    finally:
        # The leader is not reaped yet, so the group's number cannot belong to anyone else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-process.pid, 0)
        for path in SHARED_MEMORY.glob(f"{shm_prefix}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    return 128 - code if code < 0 else code


def _end_with_parent() -> None:
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    cpus, lifeline, patience_s, shm_prefix, folder, *command = sys.argv[1:]
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    sys.exit(
        keep(int(lifeline), patience_s=float(patience_s), shm_prefix=shm_prefix, folder=Path(folder), command=command)
    )
