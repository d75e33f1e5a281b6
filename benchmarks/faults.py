"""What is done to a served model under load: its processes are killed or stopped, and the repair is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import psutil

from trimaran.serving.triton import daemon, processes

_PATIENCE_S = 120.0


def _stubs(state: daemon.Running) -> list[int]:
    return sorted(processes.stubs_of(state.pid))


def _server(state: daemon.Running) -> list[int]:
    family = psutil.Process(state.pid).children(recursive=True)
    return [process.pid for process in family if process.name() == "tritonserver"]


# The processes that get the signal.
FAULTS: dict[str, tuple[Callable[[daemon.Running], list[int]], signal.Signals]] = {
    "one of two stubs killed": (lambda state: _stubs(state)[:1], signal.SIGKILL),
    "both stubs killed": (_stubs, signal.SIGKILL),
    "the server killed": (_server, signal.SIGKILL),
    "the server stopped": (_server, signal.SIGSTOP),
}


def strike(state: daemon.Running, fault: str) -> float:
    """The moment of it, of time.perf_counter()."""
    victims, number = FAULTS[fault]
    pids = victims(state)
    struck_s = time.perf_counter()
    for pid in pids:
        os.kill(pid, number)
    return struck_s


def repairs(state: daemon.Running) -> int:
    """How often the watchdog has replaced stubs, or started a server again."""
    current = next(running for running in daemon.running() if running.pid == state.pid)
    return current.reloads + current.restarts


async def repaired(state: daemon.Running, before: int) -> bool:
    """Waits until the watchdog has repaired more than `before`, and two stubs live."""
    end_s = time.perf_counter() + _PATIENCE_S
    while repairs(state) == before or len(_stubs(state)) < 2:
        if time.perf_counter() > end_s:
            return False
        await asyncio.sleep(0.1)
    return True
