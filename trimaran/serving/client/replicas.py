"""Several Tritons that serve the same models: which of them gets the next request, and which version answers.

Nothing here sends or waits. `watching` looks at the servers and writes what it sees into the `Replica`s. For each call,
`ClientCore` takes the replica with the least outstanding work that has the version in use.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError
from trimaran.serving.client.endpoint import Endpoint

# A release whose server let the watch wait is missed for so long before another one answers.
_LATE_S = 10.0
# A server that is away counts for so long with the releases that it had: it may be restarting.
_AWAY_S = 60.0
# A request that ends a server each time must not end them all.
_MOST_REPEATS_OF_SENT = 2
# Triton's words for a version that it does not have, or no longer has.
_NO_SUCH_VERSION = ("is not at ready state", "is not found", "unknown model")
# Statuses of errors that lie in the request. No other server would answer it.
_FAULT_OF_REQUEST = ("INVALID_ARGUMENT", "400", "UNIMPLEMENTED", "PERMISSION_DENIED", "403", "413")


class Release(NamedTuple):
    """A version of a model, by its number and the digest of its files."""

    version: int
    # Empty where the server does not tell it.
    digest: str = ""

    def is_same(self, other: Release) -> bool:
        return self.version == other.version and (not self.digest or not other.digest or self.digest == other.digest)


class VersionChanged(NotReady):
    """The version that a call began with is on no server any more. The call begins again with the next one."""


@dataclass(eq=False)
class Replica:
    """One server, as it was last seen."""

    # host:port
    address: str
    # The connection of calls. It is replaced when the server no longer answers, which ends the calls on it.
    channel: Any
    # The connection of canaries.
    probe: Any
    # Whether it answered when it was last looked at.
    reachable: bool = False
    # Requests that it has not answered yet.
    outstanding: int = 0
    # Requests that it was given since the beginning.
    given: int = 0
    # Of all choices, the number of the latest that fell on it.
    chosen: int = 0
    # Rounds of canaries in a row that it did not answer.
    misses: int = 0
    # A moment of the watch's clock.
    answered_at: float = -math.inf
    # The releases of each model that are loaded and answer.
    releases: dict[str, frozenset[Release]] = field(default_factory=dict)
    # Models that do not answer their canary, with the reason.
    silent: dict[str, str] = field(default_factory=dict)
    # The releases of each model that answered before, and now let the watch wait: they may be busy.
    late: dict[str, frozenset[Release]] = field(default_factory=dict)
    # The releases of each model when it last had any, and that moment.
    had: dict[str, tuple[frozenset[Release], float]] = field(default_factory=dict)

    def has(self, model: str, release: Release | None) -> bool:
        releases = self.releases.get(model, frozenset())
        return any(release is None or release.is_same(own) for own in releases)

    def lacks(self, model: str, release: Release) -> bool:
        """Whether it was seen to have other releases of the model, and not this one."""
        return self.reachable and bool(self.releases.get(model)) and not self.has(model, release)

    def may_be_busy(self, model: str, release: Release) -> bool:
        """Whether it had the release a moment ago, and has not said since that it has it no more."""
        is_late = any(map(release.is_same, self.late.get(model, ())))
        return is_late and time.monotonic() - self.answered_at < _LATE_S


def agreed(offered: Sequence[Collection[Release]], in_use: Release | None) -> Release | None:
    """The release that most replicas have.

    Of several, it is the newest if every replica has it, and otherwise the one in use. Replicas {1} {1} {2} answer with
    1, {1, 2} {1, 2} {1} too, {1, 2} {1, 2} {1, 2} with 2, and {1} {2} {2} with 2. `offered` holds the releases of each
    replica that has the model at all.
    """
    known = {release for releases in offered for release in releases}
    if not known:
        return in_use
    counts = {release: sum(any(map(release.is_same, releases)) for releases in offered) for release in known}
    most = max(counts.values())
    best = [release for release, count in counts.items() if count == most]
    if most < len(offered) and in_use is not None:
        kept = [release for release in best if release.is_same(in_use)]
        best = kept or best
    return max(best)


class Replicas:
    """Safe for several threads. `connect` makes a channel to an address."""

    def __init__(self, connect: Callable[[str], Any]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._members: dict[str, Replica] = {}
        self._choices = itertools.count(1)
        # By model.
        self._in_use: dict[str, Release] = {}

    @property
    def members(self) -> tuple[Replica, ...]:
        return tuple(self._members.values())

    @property
    def answering(self) -> int:
        return sum(replica.reachable for replica in self.members)

    def in_use(self, model: str) -> Release | None:
        """The release that answers now, on whichever replica."""
        return self._in_use.get(model)

    def models_in_use(self) -> dict[str, Release]:
        """The models that a replica has, each with the release that answers."""
        ready = {model for replica in self.members if replica.reachable for model in replica.releases}
        return {model: release for model, release in sorted(self._in_use.items()) if model in ready}

    def place(self, addresses: Collection[str]) -> list[Replica]:
        """From now on these are the members. Returns those that left; they may still have outstanding requests."""
        with self._lock:
            left = [replica for address, replica in self._members.items() if address not in addresses]
            self._members = {
                address: self._members.get(address) or Replica(address, self._connect(address), self._connect(address))
                for address in addresses
            }
            return left

    def reconnect(self, replica: Replica) -> Any:
        """Gives the replica a new channel, and returns the old one for closing."""
        old, replica.channel = replica.channel, self._connect(replica.address)
        return old

    def agree(self) -> None:
        """Decide for each model which release answers."""
        with self._lock:
            members = [replica for replica in self._members.values() if replica.reachable]
            for model in {model for replica in members for model in replica.releases}:
                in_use = self._in_use.get(model)
                offering = _counted(model, in_use, [replica for replica in members if replica.releases.get(model)])
                for replica in offering:
                    replica.had[model] = replica.releases[model], time.monotonic()
                offered = [replica.releases[model] for replica in offering]
                release = agreed(offered, in_use)
                if release is None or self._only_late(model, in_use, offered):
                    continue
                if not self._waits_for_one_away(model, in_use, release, offering):
                    self._in_use[model] = release

    def _waits_for_one_away(
        self, model: str, in_use: Release | None, release: Release, offering: Collection[Replica]
    ) -> bool:
        """Whether everybody has the release in use, and one that is away did not have the newer one.

        A change can wait then. Without this, a rollback would be undone whenever the server that began it restarts.
        """
        if in_use is None or release.is_same(in_use) or not all(replica.has(model, in_use) for replica in offering):
            return False
        now = time.monotonic()
        away = [replica.had[model] for replica in self._members.values() if model in replica.had]
        return any(now - seen_at < _AWAY_S and not any(map(release.is_same, had)) for had, seen_at in away)

    def _only_late(self, model: str, in_use: Release | None, offered: Sequence[Collection[Release]]) -> bool:
        """Whether no replica offers the release in use while a busy one has it: another release would mix versions."""
        if in_use is None or any(in_use.is_same(release) for releases in offered for release in releases):
            return False
        return any(replica.may_be_busy(model, in_use) for replica in self._members.values())

    def take(
        self, model: str, release: Release | None, tried: Collection[Replica], busy: Collection[Replica] = ()
    ) -> Replica:
        """The replica that gets the next request, rather not one that is `busy` with a copy of it.

        Raises VersionChanged if none has the release any more, and NotReady while it is on its way.
        """
        with self._lock:
            fresh = [replica for replica in self._members.values() if replica not in tried]
            usable = [replica for replica in fresh if replica.reachable and (not model or replica.has(model, release))]
            if not usable and release is not None and not release.is_same(self._in_use.get(model, release)):
                raise VersionChanged(f"Version {release.version} of {model} is no longer served.", model=model)
            # A server that was set aside may have come back: without another one it is tried.
            idle = [replica for replica in usable if replica not in busy]
            candidates = idle or usable or fresh or list(self._members.values())
            if not candidates:
                raise NotReady("No address of a Triton is known.", hint="Check that the name can be resolved.")
            if release is not None:
                candidates = [replica for replica in candidates if not replica.lacks(model, release)]
            if not candidates:
                raise _gone_for_a_moment(model, release)
            replica = min(candidates, key=lambda replica: (replica.outstanding, replica.chosen))
            replica.outstanding += 1
            replica.given += 1
            replica.chosen = next(self._choices)
            return replica

    def give_back(self, replica: Replica) -> None:
        with self._lock:
            replica.outstanding -= 1

    def may_repeat(
        self, replica: Replica, model: str, release: Release | None, failure: ServerError, tried: Collection[Replica]
    ) -> bool:
        """Note what a failure says about the replica. Whether the request may be sent to another one.

        `tried` are the replicas that failed before. A request that a server has read is repeated as well, because
        inference changes nothing.
        """
        if isinstance(failure, RequestFailed) and failure.status in _FAULT_OF_REQUEST:
            return False
        if isinstance(failure, VersionChanged) or not isinstance(failure, (NotReady, Overloaded, RequestFailed)):
            return False
        self._set_aside(replica, model, release, failure)
        untried = [member for member in self.members if member is not replica and member not in tried]
        was_sent = not (isinstance(failure, NotReady) and failure.sent is False)
        return bool(untried) and not (was_sent and len(tried) >= _MOST_REPEATS_OF_SENT)

    def _set_aside(self, replica: Replica, model: str, release: Release | None, failure: ServerError) -> None:
        """Until it is looked at again. A full queue says nothing about the server's health."""
        if isinstance(failure, Overloaded):
            return
        with self._lock:
            if release is not None and _names_no_such_version(failure):
                # While others have it, the next look must tell what else this one has: a server that stops unloads one
                # version after the other, and that is no rollback.
                others = [member for member in self._members.values() if member is not replica and member.reachable]
                is_elsewhere = any(member.has(model, release) for member in others)
                kept = {own for own in replica.releases.get(model, ()) if not own.is_same(release)}
                replica.releases[model] = frozenset() if is_elsewhere else frozenset(kept)
            elif isinstance(failure, NotReady) and failure.reloading:
                replica.releases[model] = frozenset()
            elif isinstance(failure, NotReady):
                replica.reachable = False
            else:
                return
        self.agree()


def _counted(model: str, in_use: Release | None, offering: Sequence[Replica]) -> Sequence[Replica]:
    """The replicas that have a say in which release answers.

    One whose release in use fails, while others answer with it, has none: a dead stub, or a server that stops, is no
    rollback to the other version that it still has.
    """
    if in_use is None or not any(replica.has(model, in_use) for replica in offering):
        return offering
    return [replica for replica in offering if replica.has(model, in_use) or model not in replica.silent]


def _gone_for_a_moment(model: str, release: Release | None) -> NotReady:
    """The watch will soon agree on another release, or find the server that has this one."""
    version = f" in version {release.version}" if release else ""
    return NotReady(
        f"No Triton has {model}{version} at this moment.", hint="Send again.", model=model, sent=False, reloading=True
    )


class Lease:
    """One attempt of a request. The server is chosen when the request is sent, which may be after a wait.

    A request that waits unusually long is sent twice (see `hedging`). Its copy goes to another server, if there is one.
    """

    def __init__(self, replicas: Replicas, model: str, release: Release | None, tried: list[Replica]) -> None:
        self._replicas = replicas
        self._model = model
        self._release = release
        self._tried = tried
        self._used: list[Replica] = []
        # The server that was chosen last.
        self.endpoint: Endpoint | None = None

    def send(self, method: str, endpoint: Endpoint, *arguments: Any, within_s: float) -> Any:
        replica = self._replicas.take(self._model, self._release, self._tried, self._used)
        self._used.append(replica)
        version = str(self._release.version) if self._release else ""
        self.endpoint = replace(endpoint, address=replica.address, version=version)
        result = getattr(replica.channel, method)(self.endpoint, *arguments, within_s=within_s)
        if inspect.isawaitable(result):
            return _noted(result, replica)
        replica.answered_at = time.monotonic()
        return result

    def may_repeat(self, failure: ServerError) -> bool:
        """Whether another server may be asked. Those that failed are not asked again in this round."""
        may = False
        for replica in self._used:
            may = self._replicas.may_repeat(replica, self._model, self._release, failure, self._tried)
            self._tried.append(replica)
        return may

    def for_the_caller(self, failure: ServerError) -> ServerError:
        """The caller named no version, so one that the servers do not have is no fault of the request."""
        if self._release is not None and _names_no_such_version(failure):
            return _gone_for_a_moment(self._model, self._release)
        return failure

    def end(self) -> None:
        for replica in self._used:
            self._replicas.give_back(replica)


def _names_no_such_version(failure: ServerError) -> bool:
    message = failure.message.lower()
    return any(words in message for words in _NO_SUCH_VERSION)


async def _noted(result: Awaitable[Any], replica: Replica) -> Any:
    try:
        answer = await result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Nobody cancelled the call: its connection was closed, because the server has stopped.
        raise ConnectionError("the connection was closed") from error
    replica.answered_at = time.monotonic()
    return answer
