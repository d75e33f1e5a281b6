"""The processes of a running Triton: its python stubs, and what they all hold in memory."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

import psutil

STUB = "triton_python_backend_stub"


class Stub(NamedTuple):
    """`version` is empty where a python-based backend serves the model: its command line does not say."""

    model: str
    version: str


def stubs_of(keeper: int) -> dict[int, Stub]:
    """Living stubs by process number, each with what it serves."""
    found = {}
    for process in descendants(keeper):
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            # Before it loads a model, Triton asks a bare stub for its version.
            if len(command) > 1 and Path(command[0]).name == STUB and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = _stub(command)
    return found


def kill_stubs(keeper: int, model: str) -> int:
    """Ends the stubs of a model that hang; one that is only stopped dies too."""
    doomed = [pid for pid, stub in stubs_of(keeper).items() if stub.model == model]
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(doomed)


def memory_bytes(keeper: int) -> int:
    """Resident memory of the whole family; what its members share is counted once, as far as the kernel tells."""
    total = 0
    for process in descendants(keeper):
        with contextlib.suppress(psutil.Error, OSError):
            total += proportional_bytes(process.pid) or process.memory_info().rss
    return total


def descendants(keeper: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(keeper).children(recursive=True))
    except psutil.Error:
        return []


def _stub(command: list[str]) -> Stub:
    """By the path of its model.py, and the name of its instance, which is the model's with two numbers."""
    version = Path(command[1]).parent.name
    model = next((part.rsplit("_", 2)[0] for part in command[8:9]), Path(command[1]).parent.parent.name)
    return Stub(model, version if version.isdecimal() else "")


def proportional_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
