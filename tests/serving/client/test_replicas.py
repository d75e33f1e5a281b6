"""Which of several servers gets a request, which version answers, and what is repeated elsewhere. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut
from trimaran.serving.client.core import ClientCore
from trimaran.serving.client.driver import run
from trimaran.serving.client.endpoint import endpoint_of
from trimaran.serving.client.replicas import Release, Replicas, agreed
from trimaran.serving.client.watching import Watch

CONFIG = {
    "max_batch_size": 1,
    "input": [{"name": "TEXT"}],
    "output": [{"name": "EMBEDDING", "dims": ["1"]}],
    "parameters": {"task": {"string_value": "embedding"}},
}


class Driver:
    """Waits for nothing."""

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any:
        return send()

    async def pause(self, seconds: float) -> None:
        pass

    async def together(self, work: Sequence[Callable[[], Coroutine[Any, Any, Any]]], *, within_s: float) -> list[Any]:
        return [run(start()) for start in work]


class Answered:
    def __init__(self, version: str, rows: int) -> None:
        self._version, self._rows = version, rows

    def get_response(self) -> dict[str, str]:
        return {"model_version": self._version}

    def as_numpy(self, output: str) -> np.ndarray:
        return np.full((self._rows, 1), float(self._version), np.float32)


class FakeServer:
    """A Triton with the versions of one model. `error` is raised by inference, `is_away` by everything.

    One that is `late` lets inference wait; unless it `lists`, everything.
    """

    def __init__(self, *versions: int, digest: str = "") -> None:
        self.versions = versions
        self.digest = digest
        self.error: ServerError | None = None
        self.is_away = False
        self.late, self.lists = False, True
        # A version whose stub is dead.
        self.dead = 0
        self.calls = 0

    def statistics(self, endpoint: Any, *, within_s: float) -> Any:
        if self.is_away:
            raise NotReady("away", sent=False)
        if self.late and not self.lists:
            raise TimedOut("late")
        return {"model_stats": [{"name": "m", "version": str(version)} for version in self.versions]}

    def config(self, endpoint: Any, name: str, *, within_s: float) -> Any:
        if self.is_away:
            raise NotReady("away", sent=False)
        if endpoint.version and int(endpoint.version) not in self.versions:
            raise RequestFailed("unknown model: m, version is not found", status="NOT_FOUND")
        release = {"release": {"string_value": f"{endpoint.version}:{self.digest}"}} if self.digest else {}
        return {**CONFIG, "parameters": {**CONFIG["parameters"], **release}}  # type: ignore[dict-item]

    def infer(self, endpoint: Any, name: str, inputs: Any, outputs: object, *, within_s: float) -> Any:
        if self.is_away:
            raise NotReady("Socket closed", sent=True)
        if int(endpoint.version) not in self.versions:
            raise RequestFailed("unknown model: m, version is not found", status="NOT_FOUND")
        if self.late:
            raise TimedOut("late")
        if int(endpoint.version) == self.dead:
            raise RequestFailed("Stub process 'm_0_0' is not healthy", status="INTERNAL")
        if not endpoint.priority:
            self.calls += 1
        if self.error is not None:
            raise self.error
        return Answered(endpoint.version, len(inputs["TEXT"]))

    def close(self) -> None:
        pass


class Core(ClientCore):
    def _start_watching(self, watch: Watch) -> None:
        """The tests say when it looks."""


def world(*servers: FakeServer) -> tuple[Core, Watch]:
    urls = [f"10.0.0.{number}:8001" for number in range(len(servers))]
    by_url = dict(zip(urls, servers, strict=True))
    endpoint = endpoint_of(urls, "grpc", timeout_s=10.0, concurrency=1, retries=2)
    watch = Watch(urls, endpoint, Replicas(by_url.__getitem__), Driver(), lambda host, port: [])
    core = Core(endpoint, None, Driver(), watch)
    run(core.model("m"))
    run(watch.look())
    return core, watch


def version(core: ClientCore, texts: int = 1) -> set[float]:
    return set(run(core.embed("m", ["text"] * texts)).ravel().tolist())


@pytest.mark.parametrize(
    ("offered", "in_use", "expected"),
    [
        (["1", "1", "2"], 1, 1),
        (["12", "12", "1"], 1, 1),
        (["12", "12", "12"], 1, 2),
        (["1", "12", "12"], 2, 1),
        (["1", "2", "2"], 1, 2),
        (["1", "2"], 1, 1),
        (["1", "2"], 2, 2),
        (["2"], 1, 2),
        ([], 1, 1),
    ],
)
def test_one_release_answers_and_changes_when_most_servers_have_the_next(
    offered: list[str], in_use: int, expected: int
) -> None:
    releases = [[Release(int(number)) for number in numbers] for numbers in offered]
    assert agreed(releases, Release(in_use)) == Release(expected)


def test_the_same_number_with_other_files_is_another_release() -> None:
    ours, theirs = Release(2, "aa"), Release(2, "bb")
    assert agreed([[ours], [ours], [theirs]], ours) == ours
    core, _watch = world(
        *(server := [FakeServer(2, digest="aa"), FakeServer(2, digest="aa"), FakeServer(2, digest="bb")])
    )
    for _ in range(6):
        version(core)
    assert [one.calls for one in server] == [3, 3, 0]


def test_calls_are_spread_and_the_busy_server_is_left_in_peace() -> None:
    servers = [FakeServer(1), FakeServer(1), FakeServer(1)]
    core, watch = world(*servers)
    watch.replicas.members[0].outstanding += 5
    for _ in range(8):
        version(core)
    assert [server.calls for server in servers] == [0, 4, 4]


@pytest.mark.parametrize("reason", ["killed", "stub", "full", "failed"])
def test_a_failed_call_is_repeated_elsewhere(reason: str) -> None:
    servers = [FakeServer(1), FakeServer(1), FakeServer(1)]
    core, _watch = world(*servers)
    for broken in servers[:2]:
        broken.is_away = reason == "killed"
        broken.error = {
            "stub": NotReady("the stub is not healthy", sent=False, reloading=True),
            "full": Overloaded("full"),
            "failed": RequestFailed("no", status="INTERNAL"),
        }.get(reason)
    for _ in range(4):
        assert version(core, texts=3) == {1}


def test_a_request_that_no_server_could_answer_is_asked_once() -> None:
    servers = [FakeServer(1), FakeServer(1)]
    core, _watch = world(*servers)
    for server in servers:
        server.error = RequestFailed("bad shape", status="INVALID_ARGUMENT")
    with pytest.raises(RequestFailed, match="bad shape"):
        version(core)
    assert sum(server.calls for server in servers) == 1


def test_a_request_that_ends_servers_does_not_end_them_all() -> None:
    servers = [FakeServer(1) for _ in range(6)]
    core, _watch = world(*servers)
    for server in servers:
        server.error = NotReady("Socket closed", sent=True)
    with pytest.raises(NotReady):
        version(core)
    assert sum(server.calls for server in servers) == 3


def test_a_server_that_is_set_aside_gets_nothing_until_its_canary_is_answered() -> None:
    servers = [FakeServer(1), FakeServer(1)]
    core, watch = world(*servers)
    servers[0].error = NotReady("the stub is not healthy", sent=False, reloading=True)
    run(watch.look())
    assert watch.replicas.members[0].silent == {"m": "NotReady"}
    before = servers[0].calls
    for _ in range(4):
        version(core)
    assert servers[0].calls == before
    servers[0].error = None
    run(watch.look())
    for _ in range(4):
        version(core)
    assert servers[0].calls == before + 2


def test_a_call_of_several_requests_never_mixes_versions() -> None:
    """Both servers are restarted with the next version, one after the other, while nobody looks."""
    servers = [FakeServer(1), FakeServer(1)]
    core, watch = world(*servers)
    assert version(core, texts=4) == {1}
    servers[0].versions = (2,)
    assert version(core, texts=4) == {1}
    run(watch.look())
    assert version(core, texts=4) == {1}
    servers[1].is_away = True
    assert version(core, texts=4) == {2}
    assert core.answered_by == "2"
    servers[1].is_away, servers[1].versions = False, (2,)
    run(watch.look())
    assert version(core, texts=4) == {2}


@pytest.mark.parametrize("lists", [True, False], ids=["only inference waits", "everything waits"])
def test_a_version_on_busy_servers_is_not_given_up_for_the_one_before(lists: bool) -> None:
    """Two of three have the next version. When both are short of CPU, the third must not bring back the old one."""
    servers = [FakeServer(2), FakeServer(2), FakeServer(1)]
    _, watch = world(*servers)
    assert watch.replicas.in_use("m") == Release(2)
    for server in servers[:2]:
        server.late, server.lists = True, lists
    run(watch.look())
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(2)
    for server in servers[:2]:
        server.late, server.is_away = False, True
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(1), "they are gone"


def test_a_rollback_is_not_undone_while_the_server_that_began_it_restarts() -> None:
    servers = [FakeServer(1, 2), FakeServer(1, 2), FakeServer(1, 2)]
    _, watch = world(*servers)
    assert watch.replicas.in_use("m") == Release(2)
    servers[0].versions = (1,)
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(1)
    servers[0].is_away = True
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(1), "the two that are left have both, and the first did not"
    (gone, *_) = watch.replicas.members
    gone.had["m"] = gone.had["m"][0], gone.had["m"][1] - 120.0
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(2), "a server that is away for good holds up no release"


def test_a_dead_stub_of_the_version_in_use_on_one_server_is_no_rollback() -> None:
    servers = [FakeServer(1, 2) for _ in range(3)]
    core, watch = world(*servers)
    assert version(core) == {2.0}
    servers[0].dead = 2
    run(watch.look())
    assert {value for _ in range(9) for value in version(core)} == {2.0}
    for server in servers:
        server.dead = 2
    run(watch.look())
    assert version(core) == {1.0}, "nobody answers with version 2 any more"


def test_a_server_that_unloads_its_versions_as_it_stops_is_no_rollback() -> None:
    servers = [FakeServer(1, 2) for _ in range(3)]
    core, watch = world(*servers)
    servers[0].versions = (1,)
    assert {value for _ in range(9) for value in version(core)} == {2.0}
    servers[0].is_away = True
    run(watch.look())
    assert {value for _ in range(9) for value in version(core)} == {2.0}
    servers[0].is_away = False
    run(watch.look())
    assert version(core) == {1.0}, "it came back with version 1 alone: that is a rollback"


def test_the_next_version_waits_for_a_server_that_restarts_with_it() -> None:
    servers = [FakeServer(1, 2), FakeServer(1, 2), FakeServer(1)]
    core, watch = world(*servers)
    servers[2].is_away = True
    run(watch.look())
    assert version(core) == {1}
    servers[2].is_away, servers[2].versions = False, (1, 2)
    run(watch.look())
    assert version(core) == {2}


def test_a_server_known_to_lack_the_version_in_use_is_not_asked_for_it() -> None:
    """The only server that has it lets calls wait: they fail as a busy server's do, and not as a wrong request."""
    servers = [FakeServer(2), FakeServer(1), FakeServer(1)]
    core, watch = world(*servers)
    servers[1].is_away, servers[2].late = True, True
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(1)
    with pytest.raises((TimedOut, NotReady)):
        version(core)
    assert servers[0].calls == 0


@pytest.mark.parametrize("method", ["infer", "config"])
def test_a_version_that_is_gone_before_anybody_looked_is_no_fault_of_the_request(method: str) -> None:
    servers = [FakeServer(1), FakeServer(1)]
    core, watch = world(*servers)
    core.forget() if method == "config" else None
    for server in servers:
        server.versions = (2,)
    pause = Driver.pause

    class Looking(Driver):
        async def pause(self, seconds: float) -> None:
            await watch.look()
            await pause(self, seconds)

    core._driver = Looking()
    assert version(core) == {2}


def test_a_version_whose_servers_stay_silent_is_given_up() -> None:
    servers = [FakeServer(2), FakeServer(2), FakeServer(1)]
    _, watch = world(*servers)
    for server in servers[:2]:
        server.late = True
    for replica in watch.replicas.members:
        replica.answered_at -= 60.0
    run(watch.look())
    assert watch.replicas.in_use("m") == Release(1)


def test_a_name_is_looked_up_again_and_each_address_counts_once() -> None:
    found: list[str] = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"]
    servers = {f"10.0.0.{number}:8001": FakeServer(1) for number in (1, 2, 3)}
    endpoint = endpoint_of(["tritons:8001"], "grpc", timeout_s=10.0, concurrency=1, retries=2)

    def resolve(host: str, port: int) -> list[Any]:
        assert (host, port) == ("tritons", 8001)
        if not found:
            raise OSError("no such name")
        return [(0, 0, 0, "", (address, port)) for address in found]

    watch = Watch(["tritons:8001"], endpoint, Replicas(servers.__getitem__), Driver(), resolve)
    core = Core(endpoint, None, Driver(), watch)
    assert version(core) == {1}
    assert [replica.address for replica in watch.replicas.members] == ["10.0.0.1:8001", "10.0.0.2:8001"]
    found[:] = ["10.0.0.2", "10.0.0.3"]
    run(watch.look())
    assert [replica.address for replica in watch.replicas.members] == ["10.0.0.2:8001", "10.0.0.3:8001"]
    found.clear()
    run(watch.look())
    assert len(watch.replicas.members) == 2, "a name server that is away takes nothing away"
