"""Looks at every replica again and again: which addresses there are, what each serves, and whether it answers."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trimaran.core.errors import Overloaded, ServerError, TimedOut
from trimaran.core.model_config import RELEASE
from trimaran.core.tasks import TASKS
from trimaran.serving.client import failures
from trimaran.serving.client.canary import PRIORITY, canary
from trimaran.serving.client.endpoint import Endpoint, is_ip_address, loaded_versions
from trimaran.serving.client.question import Model
from trimaran.serving.client.replicas import Release, Replica, Replicas

if TYPE_CHECKING:
    from trimaran.serving.client.driver import ClientDriver

INTERVAL_S = 1.0
# A server that does not even list its models within this time has stopped. Listing does not wait for inference.
_LIST_TIMEOUT_S = 2.0
_CANARY_TIMEOUT_S = 3.0
# Rounds of canaries without any answer, after which the calls to a replica are repeated elsewhere.
_MOST_MISSES = 3
log = logging.getLogger(__name__)


class Watch:
    """`driver` waits for the watch alone. `resolve` is getaddrinfo, or a function that returns an awaitable of it."""

    def __init__(
        self,
        urls: Sequence[str],
        endpoint: Endpoint,
        replicas: Replicas,
        driver: ClientDriver,
        resolve: Callable[..., Any],
    ) -> None:
        self._urls = tuple(urls)
        self._endpoint = endpoint
        self.replicas = replicas
        self._driver = driver
        self._resolve = resolve
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._looked_at = 0.0
        # Models that get canaries.
        self.models: set[str] = set()
        # Whether somebody goes on watching.
        self.has_begun = False
        self.is_over = False

    async def go_on(self) -> None:
        """Until `is_over`."""
        while not self.is_over:
            try:
                await self.look()
            except Exception:
                # A client that is being closed, or the end of the interpreter, is no fault.
                if self.is_over or not threading.main_thread().is_alive():
                    return
                log.exception("Looking at the servers failed")
            await self._driver.pause(INTERVAL_S)

    async def look_if_old(self) -> None:
        if time.monotonic() - self._looked_at >= INTERVAL_S:
            await self.look()

    async def look(self) -> None:
        """Find the addresses, look at each server, and decide which versions answer."""
        for url in self._urls:
            self._addresses[url] = await self._resolved(url) or self._addresses.get(url, ())
        left = self.replicas.place([address for addresses in self._addresses.values() for address in addresses])
        work = [functools.partial(self._look_at, replica) for replica in self.replicas.members]
        await self._driver.together(work, within_s=60.0)
        self.replicas.agree()
        self._looked_at = time.monotonic()
        for replica in left:
            # Its last calls end by themselves, or by their deadline.
            if not replica.outstanding:
                await _close(replica.channel)
            await _close(replica.probe)

    async def _resolved(self, url: str) -> tuple[str, ...]:
        """The addresses of a name, all of one family; of an encrypted connection, the name itself."""
        host, _, port = url.rpartition(":")
        if self._endpoint.secure or is_ip_address(host.strip("[]")):
            return (url,)
        try:
            entries = await self._driver.result(functools.partial(self._resolve, host, int(port)), within_s=5.0)
        except (OSError, ValueError, TimeoutError) as error:
            log.warning("%s cannot be resolved: %s", host, error)
            return ()
        hosts = sorted({str(entry[4][0]) for entry in entries})
        # A server that listens on both families must not count twice.
        return tuple(f"{host}:{port}" for host in hosts if ":" not in host) or tuple(
            f"[{host}]:{port}" for host in hosts
        )

    async def _look_at(self, replica: Replica) -> None:
        began = time.monotonic()
        was_reachable = replica.reachable
        try:
            listed = loaded_versions(await self._asked(replica, "statistics", within_s=_LIST_TIMEOUT_S))
        except ServerError as error:
            replica.reachable = False
            replica.late = _known(replica) if isinstance(error, TimedOut) else {}
            if was_reachable:
                log.warning("%s is set aside: %s", replica.address, type(error).__name__)
            if isinstance(error, TimedOut) and replica.answered_at < began:
                await self._end_calls(replica)
            return
        silent: dict[str, str] = {}
        known = _known(replica)
        releases: dict[str, frozenset[Release]] = {}
        for model, versions in listed.items():
            if model in self.models:
                releases[model] = await self._answering(replica, model, versions, silent)
            else:
                releases[model] = frozenset(map(Release, versions))
        for model in sorted(set(silent) - set(replica.silent)):
            log.warning("Model %s at %s is set aside: %s", model, replica.address, silent[model])
        replica.releases, replica.silent = releases, silent
        replica.late = {
            model: frozenset(release for release in known.get(model, ()) if release.version in listed[model])
            for model, reason in silent.items()
            if reason == TimedOut.__name__
        }
        replica.misses = 0 if replica.answered_at >= began or not silent else replica.misses + 1
        replica.reachable = True
        if replica.misses >= _MOST_MISSES:
            await self._end_calls(replica)

    async def _answering(
        self, replica: Replica, model: str, versions: frozenset[int], silent: dict[str, str]
    ) -> frozenset[Release]:
        """The releases of a model that answer their canary. A model that is busy with other requests is not silent."""
        before = replica.releases.get(model, frozenset())
        answering = set()
        for version in versions:
            began = time.monotonic()
            release = Release(version)
            try:
                release, makes_sense = await self._canary(replica, model, version)
                if makes_sense:
                    answering.add(release)
                else:
                    silent[model] = "its numbers are not finite, or all zero"
            except ServerError as error:
                is_busy = isinstance(error, Overloaded) or (
                    isinstance(error, TimedOut) and replica.answered_at >= began
                )
                if is_busy:
                    answering |= {known for known in before if known.version == version} or {release}
                else:
                    silent[model] = type(error).__name__
        return frozenset(answering)

    async def _canary(self, replica: Replica, name: str, version: int) -> tuple[Release, bool]:
        endpoint = replace(self._endpoint, version=str(version))
        config = await self._asked(replica, "config", name, within_s=_LIST_TIMEOUT_S, endpoint=endpoint)
        model = Model.from_config(name, config.get("config", config))
        number, _, digest = model.parameters.get(RELEASE, "").partition(":")
        release = Release(version, digest if number == str(version) else "")
        if model.task not in TASKS:
            return release, True
        ask = canary(model)
        endpoint = replace(endpoint, priority=PRIORITY)
        result = await self._asked(
            replica, "infer", name, ask.requests[0], ask.outputs, within_s=_CANARY_TIMEOUT_S, endpoint=endpoint
        )
        replica.answered_at = time.monotonic()
        return release, ask.join([{output: result.as_numpy(output) for output in ask.outputs}])

    async def _asked(
        self, replica: Replica, method: str, *arguments: Any, within_s: float, endpoint: Endpoint | None = None
    ) -> Any:
        """Raises ServerError."""
        target = replace(endpoint or self._endpoint, address=replica.address, timeout_s=within_s)
        send = functools.partial(getattr(replica.probe, method), target, *arguments, within_s=within_s)
        try:
            return await self._driver.result(send, within_s=within_s)
        except Exception as error:
            failure = failures.from_exception(target, error)
            if failure is None or failure is error:
                raise
            raise failure from error

    async def _end_calls(self, replica: Replica) -> None:
        """The calls that wait for a server which has stopped are repeated elsewhere, if there is another one."""
        if replica.outstanding and self.replicas.answering > replica.reachable:
            log.warning("%s gives no answers: %d calls go elsewhere", replica.address, replica.outstanding)
            await _close(self.replicas.reconnect(replica))

    async def close(self) -> None:
        self.is_over = True
        for replica in self.replicas.members:
            await _close(replica.channel)
            await _close(replica.probe)


def _known(replica: Replica) -> dict[str, frozenset[Release]]:
    """What it offers, and what it offered before it let the watch wait."""
    models = {*replica.releases, *replica.late}
    return {model: replica.releases.get(model, frozenset()) | replica.late.get(model, frozenset()) for model in models}


def watch_of(
    endpoint: Endpoint,
    connect: Callable[[Endpoint], Any],
    driver: ClientDriver,
    resolve: Callable[..., Any],
) -> Watch:
    replicas = Replicas(lambda address: connect(replace(endpoint, address=address)))
    return Watch(endpoint.address.split(","), endpoint, replicas, driver, resolve)


async def _close(channel: Any) -> None:
    closing = channel.close()
    if closing is not None:
        await closing
