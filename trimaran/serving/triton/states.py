"""State files of live servers: how a later command finds them, and never mistakes another process for one."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from pydantic import ValidationError as SchemaError

from trimaran.core.spec import Frozen
from trimaran.core.store import default_home, write_atomically


class Running(Frozen):
    """A live server. The start time tells its supervisor from a later process that got the same number.

    `reloads` counts models that were loaded again because they had stopped answering, `restarts` servers.
    """

    pid: int
    started_ticks: int
    repository: Path
    http_port: int
    grpc_port: int
    metrics_port: int
    log: Path
    models: tuple[str, ...]
    reloads: int = 0
    restarts: int = 0


class State:
    """The state file of a server."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.path = states_folder() / f"{running.pid}.json"

    def count(self, **more: int) -> None:
        found = {name: getattr(self.running, name) + number for name, number in more.items()}
        self.running = self.running.model_copy(update=found)
        # A full disk must not end a server that answers.
        with contextlib.suppress(OSError):
            self.write()

    def write(self) -> None:
        write_atomically(self.path, self.running.model_dump_json(indent=2) + "\n")


def running() -> tuple[Running, ...]:
    """The servers of this user that live; what dead ones left is removed."""
    found = []
    for path in sorted(states_folder().glob("*.json")):
        try:
            state = Running.model_validate_json(path.read_bytes())
        except (OSError, SchemaError):
            continue
        if ticks(state.pid) == state.started_ticks:
            found.append(state)
        else:
            path.unlink(missing_ok=True)
    return tuple(found)


def states_folder() -> Path:
    return default_home() / "servers"


def send(state: Running, number: signal.Signals) -> None:
    if ticks(state.pid) == state.started_ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)


def ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None if there is none (or only its remains)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
