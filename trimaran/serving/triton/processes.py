"""The processes of a running Triton: its Python stubs, and the memory that all of them hold."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import psutil

STUB = "triton_python_backend_stub"
# The place of the instance's name in the command line of a stub.
_INSTANCE = 8


class Stub(NamedTuple):
    """The process that runs the Python code of one model instance."""

    model: str
    # Empty where a Python-based backend serves the model: the command line does not tell.
    version: str


def stubs_of(keeper: int) -> dict[int, Stub]:
    """Living stubs by process number."""
    return {pid: _stub(command) for pid, command in _stub_commands(keeper).items()}


def _stub_commands(keeper: int) -> dict[int, list[str]]:
    """The command lines of living stubs by process number."""
    commands = {}
    for process in descendants(keeper):
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            # Before it loads a model, Triton asks a bare stub for its version.
            if len(command) > 1 and Path(command[0]).name == STUB and process.status() != psutil.STATUS_ZOMBIE:
                commands[process.pid] = command
    return commands


def living_instances(keeper: int, model: str) -> set[str]:
    """Names of the instances of a model whose stubs live, such as minilm_0_0."""
    commands = (command for command in _stub_commands(keeper).values() if _stub(command).model == model)
    return {command[_INSTANCE] for command in commands if len(command) > _INSTANCE}


def kill_stubs(keeper: int, model: str) -> None:
    """Kills the stubs of a model, also those that are stopped."""
    kill(keeper, [pid for pid, stub in stubs_of(keeper).items() if stub.model == model])


def kill_other_versions(keeper: int, model: str, version: int) -> None:
    """Kills stubs of versions that were unloaded. Triton leaves some running if another stub of theirs had died."""
    stubs = stubs_of(keeper)
    kill(keeper, [pid for pid, stub in stubs.items() if stub.model == model and stub.version not in ("", str(version))])


def kill(keeper: int, pids: Collection[int]) -> None:
    """Kills those of the processes that are stubs of this server."""
    for pid in set(pids) & set(stubs_of(keeper)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for_end(pids: Collection[int], timeout_s: float) -> None:
    """Returns after the time, or when one of the processes ends."""
    with contextlib.ExitStack() as stack:
        watched = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                watched.append(os.pidfd_open(pid))
                stack.callback(os.close, watched[-1])
        select.select(watched, [], [], timeout_s)


def memory_bytes(keeper: int) -> int:
    """Resident memory of all processes. Shared memory is counted once, where the kernel reports it."""
    total = 0
    for process in descendants(keeper):
        with contextlib.suppress(psutil.Error, OSError):
            total += proportional_bytes(process.pid) or process.memory_info().rss
    return total


def command_lines() -> list[str]:
    """Of every process of this machine."""
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def descendants(keeper: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(keeper).children(recursive=True))
    except psutil.Error:
        return []


def _stub(command: list[str]) -> Stub:
    """The version is in the path of its model.py. The instance's name is the model's name with two numbers."""
    version = Path(command[1]).parent.name
    model = next(
        (part.rsplit("_", 2)[0] for part in command[_INSTANCE : _INSTANCE + 1]), Path(command[1]).parent.parent.name
    )
    return Stub(model, version if version.isdecimal() else "")


def proportional_bytes(pid: int) -> int:
    """Memory of a process with its share of shared pages; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
