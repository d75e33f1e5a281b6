"""What the watchdog asks of a running server and its machine; tests give it a fake instead."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Protocol

from trimaran.runtime.pulse import Sign, sign_of
from trimaran.serving.triton import control, processes, readiness
from trimaran.serving.triton.processes import Stub
from trimaran.serving.triton.server import Server

# How long a stub that was replaced may take for its last batch.
_LAST_ANSWER_S = 5.0


class WatchedServer(Protocol):
    """Methods that ask Triton raise ServerError when it does not answer; `load` IntegrityError for a damaged model."""

    models: tuple[str, ...]

    def now_s(self) -> float:
        """The monotonic clock."""

    def alive(self) -> bool: ...

    def wait(self, pids: Collection[int], timeout_s: float) -> None:
        """Returns after the time, or when the server or one of the processes ends."""

    def memory_bytes(self) -> int:
        """Held by the server with all its stubs."""

    def stubs(self) -> dict[int, Stub]:
        """Living Python stubs by process number."""

    def sign(self, pid: int) -> Sign | None:
        """The sign of life that a stub last gave."""

    def send_canary(self, model: str, *, timeout_s: float, priority: int | None = None) -> None: ...

    def ready(self) -> set[Stub]:
        """The models and versions that Triton calls ready."""

    def instances(self, model: str) -> int:
        """How many instances the model is configured for."""

    def finished(self, model: str, *, timeout_s: float) -> int:
        """A count that grows while the model works."""

    def kill_stubs(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...

    def load(self, model: str) -> None: ...

    def replace_dead(self, model: str) -> None:
        """Starts stubs in the place of those that died, while those that live answer."""

    def end_stubs(self, pids: Collection[int]) -> None:
        """Ends stubs that get no more requests, when they have answered those that they have."""


class LiveServer:
    """A WatchedServer over a Triton that runs here."""

    def __init__(self, server: Server) -> None:
        self.models = server.models
        self._server = server
        self._address = server.control

    def now_s(self) -> float:
        return time.monotonic()

    def alive(self) -> bool:
        return self._server.alive()

    def wait(self, pids: Collection[int], timeout_s: float) -> None:
        processes.wait_for_end([*pids, self._server.keeper_pid], timeout_s)

    def memory_bytes(self) -> int:
        return processes.memory_bytes(self._server.keeper_pid)

    def stubs(self) -> dict[int, Stub]:
        return processes.stubs_of(self._server.keeper_pid)

    def sign(self, pid: int) -> Sign | None:
        return sign_of(self._server.pulses, pid)

    def send_canary(self, model: str, *, timeout_s: float, priority: int | None = None) -> None:
        readiness.send_canary(self._server.ports.http, model, timeout_s=timeout_s, priority=priority)

    def ready(self) -> set[Stub]:
        return {Stub(entry.name, entry.version) for entry in control.index(self._address) if entry.state == "READY"}

    def instances(self, model: str) -> int:
        return control.instances(self._address, model)

    def finished(self, model: str, *, timeout_s: float) -> int:
        return control.finished(self._address, model, timeout_s=timeout_s)

    def kill_stubs(self, model: str) -> None:
        processes.kill_stubs(self._server.keeper_pid, model)

    def unload(self, model: str) -> None:
        control.unload(self._address, model)

    def replace_dead(self, model: str) -> None:
        self._server.require_loadable(model)
        living = processes.living_instances(self._server.keeper_pid, model)
        control.replace_instances(self._address, model, living)

    def end_stubs(self, pids: Collection[int]) -> None:
        end_s = self.now_s() + _LAST_ANSWER_S
        while self.now_s() < end_s and any(sign.working for pid in pids if (sign := self.sign(pid))):
            time.sleep(0.02)
        processes.kill(self._server.keeper_pid, pids)

    def load(self, model: str) -> None:
        self._server.require_loadable(model)
        control.load(self._address, model)
