"""Runs one command, and ends it with everything it started when the owner goes away.

It is run as a script and imports only the standard library. The lifeline is the read end of a pipe, which closes when
the owner closes it or dies. The command then gets SIGTERM and some time, and is killed afterwards. Its process group,
its shared memory and its working folder are removed with it.

An argument `@NAME` is taken from the environment variable NAME. Every user can read the command line of a process, but
only its own user can read its environment. So the command starts with `@NAME` in its command line. It is stopped
before its first instruction, and its pointer to that argument is set to the value in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
# Where the python backend makes a folder for packed environments, which we do not use.
_ENVIRONMENTS = Path("/tmp")  # noqa: S108
_STARTED_WITHIN_S = 60.0
HIDDEN = "@"
# A stub needs longer than this to import its libraries, so nothing was written to its memory yet.
_PRIVATE_EVERY_S = 0.1
_TRACE_ME, _DETACH = 0, 17
# Counted from the state, the third field of /proc/PID/stat: where argc is on the stack, and the environment's bounds.
_STACK, _ENVIRONMENT_BEGIN, _ENVIRONMENT_END = 25, 47, 48
_POINTER = struct.Struct("P")


def keep(lifeline: int, *, patience_s: float, shm_prefix: str, folder: Path, command: list[str]) -> int:
    """Returns the command's exit status when everything that it left is removed."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Orphaned grandchildren become children of this process, so that they can be waited for.
    _prctl(_SET_CHILD_SUBREAPER, 1)
    began_s = _date_of_a_file_now(folder)
    process = _started(command)
    ended = os.pidfd_open(process.pid)
    try:
        ready: list[int] = []
        while not ready:
            ready, _, _ = select.select([ended, lifeline, woken], [], [], _PRIVATE_EVERY_S)
            make_private(shm_prefix)
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
        remove_environments(began_s)
    return 128 - code if code < 0 else code


def _date_of_a_file_now(folder: Path) -> float:
    """Dates of files are compared with one another, so that a clock which is set meanwhile does not matter."""
    mark = folder / ".began"
    mark.touch()
    return mark.stat().st_mtime


def remove_environments(began_s: float, folder: Path = _ENVIRONMENTS) -> None:
    """Remove what a Triton that was killed leaves behind: an empty folder that it makes when it starts."""
    for path in folder.glob("python_env_*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid() and 0 <= status.st_mtime - began_s <= _STARTED_WITHIN_S:
                path.rmdir()


def make_private(shm_prefix: str) -> None:
    """Take the shared memory of the stubs from other users: it holds the texts of callers.

    The library that makes it sets its mode itself, so that no umask helps.
    """
    for path in SHARED_MEMORY.glob(f"{shm_prefix}*"):
        with contextlib.suppress(OSError):
            # Anybody may put a link here, also between two looks at a name: what is opened is what is changed.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o077:
                    os.fchmod(descriptor, 0o600)
            finally:
                os.close(descriptor)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    hidden = [index for index, argument in enumerate(command) if argument.startswith(HIDDEN)]
    if hidden:
        try:
            process = _popen(command, _end_with_parent, _be_traced)
        except subprocess.SubprocessError:
            sys.stderr.write("ptrace is forbidden here: every user can read the control secret in the command line.\n")
        else:
            os.waitpid(process.pid, 0)
            _reveal(process.pid, {index: command[index].removeprefix(HIDDEN) for index in hidden})
            return process
    plain = [os.environ[word.removeprefix(HIDDEN)] if word.startswith(HIDDEN) else word for word in command]
    return _popen(plain, _end_with_parent)


def _popen(command: list[str], *before: Callable[[], None]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: [call() for call in before],  # noqa: PLW1509  (this process has one thread)
    )


def _be_traced() -> None:
    """The next exec then stops this process. Raises where the kernel forbids it."""
    if ctypes.CDLL(None, use_errno=True).ptrace(_TRACE_ME, 0, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def _reveal(pid: int, variables: dict[int, str]) -> None:
    """Turn arguments of the stopped process, by their index, to the values of environment variables; let it run."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    stack, begin, end = (int(fields[index]) for index in (_STACK, _ENVIRONMENT_BEGIN, _ENVIRONMENT_END))
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(begin)
        environment = b"\0" + memory.read(end - begin)
        for index, name in variables.items():
            value = begin - 1 + environment.index(f"\0{name}=".encode()) + len(name) + 2
            # The stack begins with argc; the pointers to the arguments follow.
            memory.seek(stack + (1 + index) * _POINTER.size)
            memory.write(_POINTER.pack(value))
    ctypes.CDLL(None).ptrace(_DETACH, pid, None, None)


def _end_with_parent() -> None:
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    cpus, lifeline, patience_s, shm_prefix, folder, *command = sys.argv[1:]
    os.umask(0o077)
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    sys.exit(
        keep(int(lifeline), patience_s=float(patience_s), shm_prefix=shm_prefix, folder=Path(folder), command=command)
    )
