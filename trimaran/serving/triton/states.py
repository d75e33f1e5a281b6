"""State files of live servers: later commands find the servers by them, and never take another process for one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError as SchemaError

from trimaran.core.spec import Frozen
from trimaran.core.store import default_home, write_atomically
from trimaran.judging.shadow_evidence import ShadowState
from trimaran.serving.triton.control import Address
from trimaran.serving.triton.ports import HOST


class ProcessState(Frozen):
    """A process that wrote a state file."""

    pid: int
    # Tells it from a later process with the same number.
    started_ticks: int

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.started_ticks

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Running(ProcessState):
    """A live server. Its process is the supervisor's."""

    repository: Path
    http_port: int
    grpc_port: int
    metrics_port: int
    log: Path
    models: tuple[str, ...]
    # How often a model was loaded again because it had stopped answering, and how often the server was restarted.
    reloads: int = 0
    restarts: int = 0
    # The public key with which everything that is loaded must be signed.
    trust_key: Path | None = None
    # Models that are not served because their files are damaged, with the reason.
    refused: dict[str, str] = {}
    # The share of rows that the shadow checks, and how often its process was started again.
    shadow: float = 0.0
    shadow_restarts: int = 0

    @property
    def path(self) -> Path:
        return _folder() / f"{self.pid}.json"

    @property
    def control(self) -> Address:
        """Where the server is loaded and unloaded, with the secret that opens it."""
        try:
            return Address(HOST, self.http_port, self._secret_path.read_text(encoding="utf-8"))
        except OSError:
            return Address(HOST, self.http_port)

    @property
    def _secret_path(self) -> Path:
        """Beside the state file, which is printed and copied: the secret is not."""
        return self.path.with_suffix(".secret")

    @property
    def shadow_path(self) -> Path:
        """What the shadow has seen: numbers only."""
        return self.path.with_suffix(".shadow")

    def shadow_state(self) -> ShadowState:
        try:
            return ShadowState.model_validate_json(self.shadow_path.read_bytes())
        except (OSError, SchemaError):
            return ShadowState()

    def keep_secret(self, secret: str) -> None:
        write_atomically(self._secret_path, secret, mode=0o600)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._secret_path.unlink(missing_ok=True)
        self.shadow_path.unlink(missing_ok=True)


State = TypeVar("State", bound=ProcessState)


class StateFile:
    """The state file of a server that this process supervises."""

    def __init__(self, running: Running, secret: str) -> None:
        self.running = running
        running.keep_secret(secret)
        self._write()

    def count(self, counter: Literal["reloads", "restarts", "shadow_restarts"]) -> None:
        self.running = self.running.model_copy(update={counter: getattr(self.running, counter) + 1})
        # A full disk must not end a server that answers.
        with contextlib.suppress(OSError):
            self._write()

    def add(self, models: tuple[str, ...]) -> None:
        self.running = self.running.model_copy(update={"models": (*self.running.models, *models)})
        with contextlib.suppress(OSError):
            self._write()

    def _write(self) -> None:
        write_atomically(self.running.path, self.running.model_dump_json(indent=2) + "\n")


def running() -> tuple[Running, ...]:
    """The live servers of this user. State files of dead servers are removed."""
    return live_states(_folder(), Running, Running.remove)


def live_states(folder: Path, kind: type[State], remove: Callable[[State], None]) -> tuple[State, ...]:
    """The state files of `folder` whose process lives. The others are removed."""
    live = []
    for path in sorted(folder.glob("*.json")):
        try:
            state = kind.model_validate_json(path.read_bytes())
        except (OSError, SchemaError):
            continue
        if state.alive:
            live.append(state)
        else:
            remove(state)
    return tuple(live)


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _folder() -> Path:
    return default_home() / "servers"
