"""Looks after a running server: a canary for each model, and what is done when one stops singing.

Triton's readiness stays true over a dead python stub, so nothing but an answer counts.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from trimaran.core.errors import NotReady, ServerError
from trimaran.runtime.pulse import Sign, sign_of
from trimaran.serving.triton import control, processes, readiness
from trimaran.serving.triton.server import Server

log = logging.getLogger(__name__)
Health = Literal["well", "dead", "busy", "absent"]
# By the status of the answer to a canary; any other is a death.
_HEALTH: dict[object, Health] = {None: "busy", 503: "busy", 400: "absent", 404: "absent"}


@dataclass(frozen=True)
class Care:
    """`canary_s` is the time between canaries of a model; `hang_s` how long one that is asked may finish nothing, or
    one of its stubs not move; `memory_limit_bytes` is for the server with all its stubs.
    """

    canary_s: float = 1.0
    canary_timeout_s: float = 3.0
    hang_s: float = 30.0
    memory_limit_bytes: int | None = None


DEFAULT_CARE = Care()


@dataclass
class _Watched:
    """What is known of one model: when it last finished something, and whether it must be loaded again."""

    next_canary_s: float = 0.0
    progressed_s: float = field(default_factory=time.monotonic)
    finished: int = -1
    missing: bool = False
    failures: int = 0


class Watchdog:
    """`tick` is called often; it raises ServerGone when the server itself must be started again."""

    def __init__(self, server: Server, care: Care, *, on_reload: Callable[[str, str], None]) -> None:
        self._server, self._care, self._on_reload = server, care, on_reload
        self._address = (server.host, server.ports.http)
        self._watched = {model: _Watched() for model in server.models}
        self._stubs: dict[int, processes.Stub] = {}
        self._pool = ThreadPoolExecutor(max(1, len(self._watched)), thread_name_prefix="trimaran-canary")
        self._answered_s = time.monotonic()
        self._next_memory_s = 0.0

    def tick(self) -> None:
        if not self._server.alive():
            raise ServerGone("it ended by itself")
        self._watch_memory()
        for model in self._widowed():
            self._reload(model, "its python stub died")
            self._schedule(model)
        now = time.monotonic()
        due = [name for name, one in self._watched.items() if now >= one.next_canary_s]
        for model, health in zip(due, self._pool.map(self._health, due), strict=True):
            self._act(model, health)
            self._schedule(model)
        if time.monotonic() - self._answered_s > self._care.hang_s:
            raise ServerGone(f"it answered nothing for {self._care.hang_s:g} s")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _schedule(self, model: str) -> None:
        """A model that cannot be loaded is tried ever more rarely: each attempt costs the others CPU."""
        one = self._watched[model]
        one.next_canary_s = time.monotonic() + self._care.canary_s * min(60, 2**one.failures)

    def _widowed(self) -> set[str]:
        """Models that have fewer stubs than they are configured for and do not know it. Unloading ends one too, but
        Triton says so first; and the stub of a model that was loaded again can outlive the loading for a while.
        """
        found = processes.stubs_of(self._server.keeper_pid)
        before, now = Counter(self._stubs.values()), Counter(found.values())
        lost = {stub for stub, count in before.items() if now[stub] < count}
        self._stubs = found
        if not lost:
            return set()
        suspects = {stub for stub in lost if stub.model in self._watched} & self._ready()
        # Counted once more: what was being loaded at the first count may have become ready since.
        now = Counter(processes.stubs_of(self._server.keeper_pid).values())
        suspects = {stub for stub in suspects if now[stub] < self._wanted(stub.model)}
        return {stub.model for stub in suspects & self._ready()} if suspects else set()

    def _wanted(self, model: str) -> int:
        try:
            return control.instances(self._address, model)
        except ServerError:
            return 0

    def _ready(self) -> set[processes.Stub]:
        """What Triton takes for ready; nothing when it does not answer."""
        try:
            index = control.index(self._address)
            return {processes.Stub(entry.name, entry.version) for entry in index if entry.state == "READY"}
        except ServerError:
            return set()

    def _watch_memory(self) -> None:
        limit, now = self._care.memory_limit_bytes, time.monotonic()
        if limit is None or now < self._next_memory_s:
            return
        self._next_memory_s = now + self._care.canary_s
        found = processes.memory_bytes(self._server.keeper_pid)
        if found > limit:
            raise ServerGone(f"it holds {found >> 20} MiB of memory, more than its limit of {limit >> 20} MiB")

    def _health(self, model: str) -> Health:
        if self._watched[model].missing:
            return "dead"
        health = self._canary(model)
        if health != "dead":
            return health
        # A canary that met an unloading fails too; Triton has then said that the model goes, or another version of it
        # answers the next one.
        return self._canary(model) if any(stub.model == model for stub in self._ready()) else "absent"

    def _canary(self, model: str) -> Health:
        try:
            readiness.sing(self._server.ports.http, model, timeout_s=self._care.canary_timeout_s, priority=1)
        except NotReady as error:
            if error.status is not None:
                self._answered_s = time.monotonic()
            return _HEALTH.get(error.status, "dead")
        self._answered_s = time.monotonic()
        return "well"

    def _act(self, model: str, health: Health) -> None:
        one = self._watched[model]
        if health in ("well", "absent"):
            one.progressed_s, one.finished = time.monotonic(), -1
        elif health == "dead":
            self._reload(model, "it answers a canary with nonsense or an error")
        if health in ("well", "busy") and self._stuck(model):
            self._reload(model, f"one of its python stubs did not move for {self._care.hang_s:g} s")
        elif health == "busy" and self._hangs(model):
            self._reload(model, f"it finished nothing for {self._care.hang_s:g} s")

    def _stuck(self, model: str) -> bool:
        """One of several stubs can hang while the others answer the canaries."""
        return any(time.monotonic() - sign.moved_s > self._care.hang_s for sign in self._signs(model))

    def _signs(self, model: str) -> list[Sign]:
        found = [sign_of(self._server.pulses, pid) for pid, stub in self._stubs.items() if stub.model == model]
        return [sign for sign in found if sign is not None]

    def _hangs(self, model: str) -> bool:
        """No answer to a canary may mean much to do; a model that hangs finishes nothing at all, and none of its stubs
        works on something long.
        """
        one, now = self._watched[model], time.monotonic()
        try:
            finished = control.finished(self._address, model)
        except ServerError:
            return False
        self._answered_s = now
        if finished != one.finished or any(sign.working for sign in self._signs(model)):
            one.finished, one.progressed_s = finished, now
        return now - one.progressed_s > self._care.hang_s

    def _reload(self, model: str, reason: str) -> None:
        """Unloaded and loaded again. A stub that lives but hangs is ended first, or unloading would wait for it."""
        log.warning("Model %s is loaded again: %s.", model, reason)
        one = self._watched[model]
        processes.kill_stubs(self._server.keeper_pid, model)
        try:
            control.unload(self._address, model)
            one.missing = True
            control.load(self._address, model)
            readiness.sing(self._server.ports.http, model)
        except ServerError as error:
            log.error("Model %s could not be loaded again and will be tried once more: %s", model, error)
            one.failures += 1
            return
        one.missing, one.progressed_s, one.finished, one.failures = False, time.monotonic(), -1, 0
        self._stubs = processes.stubs_of(self._server.keeper_pid)
        self._answered_s = time.monotonic()
        self._on_reload(model, reason)


class ServerGone(Exception):
    """The server must be started again; says why."""
