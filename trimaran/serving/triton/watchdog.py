"""Looks after a running server: sends canaries to each model, and reloads a model that stops answering.

Triton's readiness stays true over a dead Python stub, so only an answer counts.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from trimaran.core.errors import IntegrityError, NotReady, ServerError
from trimaran.runtime.pulse import Sign
from trimaran.serving.triton.processes import Stub
from trimaran.serving.triton.watched_server import WatchedServer

log = logging.getLogger(__name__)
Health = Literal["well", "dead", "busy", "absent"]
# By the HTTP status of the answer to a canary (None is no answer); any other status means that the model is dead.
_HEALTH: dict[int | None, Health] = {None: "busy", 503: "busy", 400: "absent", 404: "absent"}
_RELOAD_CANARY_TIMEOUT_S = 60.0
_STUB_DIED = "its python stub died"
# The longest wait for statistics, and the shortest for anything.
_STATISTICS_S, _LEAST_WAIT_S = 2.0, 0.5
# Triton serves priority 1 before the requests of callers.
_CANARY_PRIORITY = 1


@dataclass(frozen=True)
class WatchdogSettings:
    # The time between two canaries of a model, and how long one may take.
    canary_s: float = 1.0
    canary_timeout_s: float = 3.0
    # How long a model that is asked may finish nothing, or one of its stubs may show no sign of life.
    hang_s: float = 30.0
    # For the server with all its stubs.
    memory_limit_bytes: int | None = None


DEFAULT_SETTINGS = WatchdogSettings()


@dataclass
class _WatchedModel:
    # When it last finished something, and its count of finished work then (-1: not asked since).
    progressed_s: float
    finished: int = -1
    next_canary_s: float = 0.0
    # Unloaded by us and not loaded again yet.
    missing: bool = False
    # Attempts in a row to load it again that failed.
    failures: int = 0

    def progress(self, now_s: float, finished: int = -1) -> None:
        self.progressed_s, self.finished = now_s, finished


class Watchdog:
    """Call `tick` often. It raises ServerGone when the server itself must be started again."""

    def __init__(
        self, server: WatchedServer, settings: WatchdogSettings, *, on_reload: Callable[[str, str], None]
    ) -> None:
        self._server, self._settings, self._on_reload = server, settings, on_reload
        self._models = {model: _WatchedModel(progressed_s=server.now_s()) for model in server.models}
        self._stubs: dict[int, Stub] = {}
        self._pool = ThreadPoolExecutor(max(1, len(self._models)), thread_name_prefix="trimaran-canary")
        self._answered_s = server.now_s()
        self._next_memory_s = 0.0

    def tick(self) -> None:
        if not self._server.alive():
            raise ServerGone("it ended by itself")
        self._check_memory()
        for name in self._models_with_lost_stubs():
            self._replace(name, _STUB_DIED)
            self._schedule(name)
        now_s = self._server.now_s()
        due = [name for name, model in self._models.items() if now_s >= model.next_canary_s]
        for name, health in zip(due, self._pool.map(self._health, due), strict=True):
            self._act(name, health)
            self._schedule(name)
        if self._server.now_s() - self._answered_s > self._settings.hang_s:
            raise ServerGone(f"it answered nothing for {self._settings.hang_s:g} s", answers=False)

    def watch(self, models: Iterable[str]) -> None:
        """Looks after these models too: they were loaded after the server had started."""
        self._models |= {model: _WatchedModel(progressed_s=self._server.now_s()) for model in models}
        self._pool.shutdown(wait=False)
        self._pool = ThreadPoolExecutor(max(1, len(self._models)), thread_name_prefix="trimaran-canary")

    def wait(self, timeout_s: float) -> None:
        """Returns early when a stub or the server ends."""
        self._server.wait(self._stubs, timeout_s)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _schedule(self, name: str) -> None:
        """A model that cannot be loaded is tried less and less often: each attempt costs the others CPU."""
        model = self._models[name]
        model.next_canary_s = self._server.now_s() + self._settings.canary_s * min(60, 2**model.failures)

    def _models_with_lost_stubs(self) -> set[str]:
        """Models that Triton calls ready although they have fewer stubs than they are configured for.

        Unloading a model ends its stubs too, but Triton reports that first. The old stub of a reloaded model can also
        live on for a while after the reload.
        """
        stubs = self._server.stubs()
        before, now = Counter(self._stubs.values()), Counter(stubs.values())
        lost = {stub for stub, count in before.items() if now[stub] < count}
        try:
            ready = self._server.ready() if lost else set()
        except ServerError:
            # They are missed again at the next tick.
            return set()
        self._stubs = stubs
        suspects = {stub for stub in lost if stub.model in self._models} & ready
        if not suspects:
            return set()
        # Counted again: a model that was being loaded at the first count may have become ready since.
        now = Counter(self._server.stubs().values())
        suspects = {stub for stub in suspects if now[stub] < self._instances(stub.model)}
        return {stub.model for stub in suspects & self._ready()}

    def _lacks_stubs(self, name: str) -> bool:
        """Whether a canary failed because a stub died that was not missed yet."""
        had_stubs = any(stub.model == name for stub in self._stubs.values())
        return had_stubs and not self._models[name].missing and len(self._pids(name)) < self._instances(name)

    def _instances(self, name: str) -> int:
        try:
            return self._server.instances(name)
        except ServerError:
            return 0

    def _ready(self) -> set[Stub]:
        """What Triton calls ready; nothing when it does not answer."""
        try:
            return self._server.ready()
        except ServerError:
            return set()

    def _check_memory(self) -> None:
        limit, now_s = self._settings.memory_limit_bytes, self._server.now_s()
        if limit is None or now_s < self._next_memory_s:
            return
        self._next_memory_s = now_s + self._settings.canary_s
        held = self._server.memory_bytes()
        if held > limit:
            raise ServerGone(f"it holds {held >> 20} MiB of memory, more than its limit of {limit >> 20} MiB")

    def _health(self, name: str) -> Health:
        if self._models[name].missing:
            return "dead"
        health = self._canary(name)
        if health != "dead":
            return health
        # A canary also fails when it meets an unload. Triton then no longer calls the model ready, or another version
        # answers the next canary.
        return self._canary(name) if any(stub.model == name for stub in self._ready()) else "absent"

    def _canary(self, name: str) -> Health:
        timeout_s = self._in_time(self._settings.canary_timeout_s)
        try:
            self._server.send_canary(name, timeout_s=timeout_s, priority=_CANARY_PRIORITY)
        except NotReady as error:
            if error.status is not None:
                self._answered_s = self._server.now_s()
            return _HEALTH.get(error.status, "dead")
        self._answered_s = self._server.now_s()
        return "well"

    def _in_time(self, timeout_s: float) -> float:
        """No longer than until the server counts as silent, so that a stopped one is found in time."""
        left_s = self._answered_s + self._settings.hang_s - self._server.now_s()
        return max(_LEAST_WAIT_S, min(timeout_s, left_s))

    def _act(self, name: str, health: Health) -> None:
        if health in ("well", "absent"):
            self._models[name].progress(self._server.now_s())
        elif health == "dead" and self._lacks_stubs(name):
            self._replace(name, _STUB_DIED)
        elif health == "dead":
            self._reload(name, "it answers a canary with nonsense or an error")
        finished = self._finished(name) if health == "busy" else None
        if health == "busy" and finished is None:
            # The server itself is silent, and unloading a model would wait for it. Its stubs may wait for it too.
            return
        if health in ("well", "busy") and self._has_stuck_stub(name):
            self._reload(name, f"one of its python stubs did not move for {self._settings.hang_s:g} s")
        elif finished is not None and self._hangs(name, finished):
            self._reload(name, f"it finished nothing for {self._settings.hang_s:g} s")

    def _has_stuck_stub(self, name: str) -> bool:
        """One of several stubs can hang while the others answer the canaries."""
        return any(self._server.now_s() - sign.moved_s > self._settings.hang_s for sign in self._signs(name))

    def _signs(self, name: str) -> list[Sign]:
        signs = [self._server.sign(pid) for pid, stub in self._stubs.items() if stub.model == name]
        return [sign for sign in signs if sign is not None]

    def _finished(self, name: str) -> int | None:
        """The model's count of finished work; None if the server does not answer."""
        try:
            finished = self._server.finished(name, timeout_s=self._in_time(_STATISTICS_S))
        except ServerError:
            return None
        self._answered_s = self._server.now_s()
        return finished

    def _hangs(self, name: str, finished: int) -> bool:
        """A busy model may miss a canary. One that hangs finishes nothing at all, and none of its stubs is working."""
        model, now_s = self._models[name], self._server.now_s()
        if finished != model.finished or any(sign.working for sign in self._signs(name)):
            model.progress(now_s, finished)
        return now_s - model.progressed_s > self._settings.hang_s

    def _replace(self, name: str, reason: str) -> None:
        """Replaces the stubs of a model that died, while the others go on answering."""
        left = self._pids(name)
        try:
            self._server.replace_dead(name)
            self._server.send_canary(name, timeout_s=_RELOAD_CANARY_TIMEOUT_S)
        except (ServerError, IntegrityError) as error:
            log.warning("The dead stubs of model %s could not be replaced: %s", name, error)
            self._reload(name, reason)
            return
        log.warning("Model %s has new stubs: %s.", name, reason)
        # If Triton loaded the whole model beside itself, the old stubs get no more requests.
        if len(self._pids(name) - left) >= self._instances(name):
            self._server.end_stubs(left)
        self._is_back(name, reason)

    def _pids(self, name: str) -> set[int]:
        return {pid for pid, stub in self._server.stubs().items() if stub.model == name}

    def _reload(self, name: str, reason: str) -> None:
        """Unloads the model and loads it again. Its stubs are killed first: unloading would wait for one that hangs."""
        log.warning("Model %s is loaded again: %s.", name, reason)
        model = self._models[name]
        self._server.kill_stubs(name)
        try:
            self._server.unload(name)
            model.missing = True
            self._server.load(name)
            self._server.send_canary(name, timeout_s=_RELOAD_CANARY_TIMEOUT_S)
        except (ServerError, IntegrityError) as error:
            log.error("Model %s could not be loaded again and will be tried once more: %s", name, error)
            model.failures += 1
            return
        self._is_back(name, reason)

    def _is_back(self, name: str, reason: str) -> None:
        model = self._models[name]
        model.missing, model.failures = False, 0
        model.progress(self._server.now_s())
        # Only the stubs of this model: those of another may have died meanwhile, and are missed at the next tick.
        others = {pid: stub for pid, stub in self._stubs.items() if stub.model != name}
        self._stubs = others | {pid: stub for pid, stub in self._server.stubs().items() if stub.model == name}
        self._answered_s = self._server.now_s()
        self._on_reload(name, reason)


class ServerGone(Exception):
    """The server must be started again; the message says why."""

    def __init__(self, reason: str, *, answers: bool = True) -> None:
        super().__init__(reason)
        # Whether it may still answer what it was asked: one that does not is not waited for.
        self.answers = answers
