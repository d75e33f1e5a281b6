"""What the watchdog takes for a death, decided on made-up processes and answers."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from trimaran.core.errors import NotReady, RequestFailed
from trimaran.runtime.pulse import Sign
from trimaran.serving.triton.processes import Stub
from trimaran.serving.triton.watchdog import ServerGone, Watchdog, WatchdogSettings
from trimaran.serving.triton.watched_server import WatchedServer

FIRST, SECOND = Stub("m", "1"), Stub("m", "2")


class FakeServer:
    """A server of one model, and what was done to it."""

    def __init__(self) -> None:
        self.models = ("m",)
        self.clock_s = 1000.0
        self.running, self.memory = True, 0
        self.living: dict[int, Stub] = {10: FIRST}
        self.signs: dict[int, Sign] = {}
        self.states: dict[str, str] = {"1": "READY"}
        self.on_index: Callable[[], None] = lambda: None
        # What the next canaries raise; the last one stays. After a load, a canary is answered.
        self.canaries: list[Exception | None] = [None]
        self.work, self.configured = 0, 1
        self.refuses_to_load = False
        # The stubs that Triton starts when dead ones are replaced.
        self.replacements: tuple[int, ...] = ()
        self.calls: list[str] = []

    def now_s(self) -> float:
        return self.clock_s

    def alive(self) -> bool:
        return self.running

    def wait(self, pids: Collection[int], timeout_s: float) -> None:
        self.clock_s += timeout_s

    def memory_bytes(self) -> int:
        return self.memory

    def stubs(self) -> dict[int, Stub]:
        return dict(self.living)

    def sign(self, pid: int) -> Sign | None:
        return self.signs.get(pid)

    def send_canary(self, model: str, *, timeout_s: float, priority: int | None = None) -> None:
        error = self.canaries.pop(0) if len(self.canaries) > 1 else self.canaries[0]
        if error and self.calls[-1:] != ["load"]:
            raise error

    def ready(self) -> set[Stub]:
        self.on_index()
        return {Stub("m", version) for version, state in self.states.items() if state == "READY"}

    def instances(self, model: str) -> int:
        return self.configured

    def finished(self, model: str, *, timeout_s: float) -> int:
        return self.work

    def kill_stubs(self, model: str) -> None:
        self.calls.append("kill")

    def unload(self, model: str) -> None:
        self.calls.append("unload")

    def replace_dead(self, model: str) -> None:
        if self.refuses_to_load:
            raise RequestFailed("no memory")
        self.calls.append("replace")
        self.living |= dict.fromkeys(self.replacements, FIRST)

    def end_stubs(self, pids: Collection[int]) -> None:
        self.calls.append(f"end {sorted(pids)}")

    def load(self, model: str) -> None:
        if self.refuses_to_load:
            raise RequestFailed("no memory")
        self.calls.append("load")


class World(FakeServer):
    """The fake server under a watchdog."""

    def __init__(self, settings: WatchdogSettings | None = None) -> None:
        super().__init__()
        self.reloads: list[str] = []
        server: WatchedServer = self
        settings = settings or WatchdogSettings(canary_s=1.0, hang_s=30.0)
        self.watchdog = Watchdog(server, settings, on_reload=lambda model, reason: self.reloads.append(reason))

    def tick(self, after_s: float = 1.0) -> None:
        self.clock_s += after_s
        self.watchdog.tick()


@pytest.fixture
def world() -> World:
    world = World()
    world.tick()
    return world


def test_a_stub_that_is_gone_from_a_ready_version_means_death(world: World) -> None:
    world.living = {}
    world.tick()
    assert world.reloads == ["its python stub died"]
    assert world.calls == ["replace"]


def test_a_model_whose_stubs_cannot_be_replaced_is_unloaded_first(world: World) -> None:
    world.living, world.refuses_to_load = {}, True
    world.tick()
    assert (world.reloads, world.calls) == ([], ["kill", "unload"])


@pytest.fixture
def two_stubs(world: World) -> World:
    world.living, world.configured = {10: FIRST, 11: FIRST}, 2
    world.tick()
    return world


@pytest.mark.parametrize(
    ("replacements", "calls"),
    [((12,), ["replace"]), ((12, 13), ["replace", "end [10]"])],
    ids=["the one that lives stays", "where the whole model was loaded beside itself, it ends"],
)
def test_one_of_two_instances_is_missed(two_stubs: World, replacements: tuple[int, ...], calls: list[str]) -> None:
    two_stubs.living, two_stubs.replacements = {10: FIRST}, replacements
    two_stubs.tick()
    assert len(two_stubs.reloads) == 1
    assert two_stubs.calls == calls


def test_a_stub_that_dies_during_its_canary_is_replaced_and_the_model_is_not_unloaded(two_stubs: World) -> None:
    def die(*_: object, **__: object) -> None:
        two_stubs.living.pop(11, None)
        if not two_stubs.calls:
            raise NotReady("not healthy", status=500)

    two_stubs.send_canary = die  # type: ignore[method-assign]
    two_stubs.tick()
    assert (two_stubs.reloads, two_stubs.calls) == (["its python stub died"], ["replace"])


def test_a_stub_that_dies_while_triton_does_not_answer_is_missed_afterwards(two_stubs: World) -> None:
    def no_answer() -> None:
        raise NotReady("no answer")

    two_stubs.living, two_stubs.on_index = {10: FIRST}, no_answer
    two_stubs.tick()
    assert two_stubs.calls == []
    two_stubs.on_index = lambda: None
    two_stubs.tick()
    assert two_stubs.calls == ["replace"]


def test_a_stub_that_outlived_its_models_loading_is_not_missed(world: World) -> None:
    world.living = {10: FIRST, 11: FIRST}
    world.tick()
    world.living = {11: FIRST}
    world.tick()
    assert world.reloads == []


@pytest.mark.parametrize(
    ("stubs", "ready"),
    [
        ({20: SECOND}, {"1": "UNLOADING", "2": "READY"}),
        ({20: FIRST}, {"1": "READY"}),
        ({}, {"1": "UNAVAILABLE"}),
        ({}, {}),
    ],
    ids=["another version took over", "it went and came back", "unloaded", "not there at all"],
)
def test_a_stub_that_was_let_go_is_no_death(world: World, stubs: dict[int, Stub], ready: dict[str, str]) -> None:
    world.living, world.states = stubs, ready
    world.tick()
    assert world.reloads == []


def test_stubs_that_start_while_the_index_is_read_are_not_missed(world: World) -> None:
    """The old ones have gone, and by the time Triton calls the version ready there are new ones."""

    def start_again() -> None:
        world.living = {12: FIRST}

    world.living = {}
    world.on_index = start_again
    world.tick()
    assert world.reloads == []


def test_a_canary_that_met_a_change_of_versions_is_sent_again(world: World) -> None:
    world.canaries = [NotReady("the version goes", status=500), None]
    world.tick()
    assert world.reloads == [] and world.canaries == [None]


def test_nonsense_and_errors_mean_death_but_absence_and_overload_do_not(world: World) -> None:
    for status in (404, 400, 503):
        world.canaries = [NotReady("no", status=status)]
        world.tick()
    assert world.reloads == []
    world.canaries = [NotReady("zeros", status=200)]
    world.tick()
    assert world.reloads == ["it answers a canary with nonsense or an error"]


def test_silence_is_a_death_only_when_nothing_is_finished() -> None:
    world = World(WatchdogSettings(canary_s=1.0, hang_s=10.0))
    world.canaries = [NotReady("no answer in time")]
    for world.work in range(1, 20):
        world.tick()
    assert world.reloads == []
    for _ in range(11):
        world.tick()
    assert world.reloads == ["it finished nothing for 10 s"]


@pytest.mark.parametrize("canary", [None, NotReady("no answer in time")], ids=["the other answers", "silence"])
def test_one_of_two_stubs_that_does_not_move_is_missed(world: World, canary: Exception | None) -> None:
    world.living, world.configured, world.canaries = {10: FIRST, 11: FIRST}, 2, [canary]
    begun_s = world.clock_s
    for world.work in range(29):
        world.signs = {10: Sign(begun_s, True), 11: Sign(world.clock_s, False)}
        world.tick()
    assert world.reloads == []
    for _ in range(2):
        world.tick()
    assert world.reloads == ["one of its python stubs did not move for 30 s"]


def test_a_stub_that_works_on_something_long_is_left_alone(world: World) -> None:
    world.canaries = [NotReady("no answer in time")]
    for _ in range(60):
        world.signs = {10: Sign(world.clock_s, True)}
        world.tick()
    assert world.reloads == []
    for _ in range(32):
        world.signs = {10: Sign(world.clock_s, False)}
        world.tick()
    assert world.reloads == ["it finished nothing for 30 s"]


def test_a_model_that_will_not_load_is_tried_again_and_ever_more_rarely(world: World) -> None:
    world.refuses_to_load = True
    world.living = {}
    for _ in range(16):
        world.tick()
    assert world.calls.count("unload") == 4, "at once, then after 2, 4 and 8 s"
    assert world.reloads == []
    world.refuses_to_load = False
    world.tick(16.0)
    assert len(world.reloads) == 1


def test_a_dead_server_and_one_beyond_its_memory_must_be_started_again() -> None:
    world = World(WatchdogSettings(memory_limit_bytes=1 << 20))
    world.tick()
    world.memory = 3 << 20
    with pytest.raises(ServerGone, match="3 MiB of memory, more than its limit of 1 MiB"):
        world.tick()
    world.running = False
    with pytest.raises(ServerGone, match="ended by itself"):
        world.tick()


def test_a_server_that_answers_nothing_must_be_started_again() -> None:
    world = World(WatchdogSettings(canary_s=1.0, hang_s=10.0))
    world.canaries = [NotReady("no answer in time")]

    waits: list[float] = []

    def nothing(model: str, *, timeout_s: float) -> int:
        waits.append(timeout_s)
        raise NotReady("no answer")

    world.finished = nothing  # type: ignore[method-assign]
    # A stub that waits for its server shows no sign of life either, but unloading the model would wait too.
    world.signs = {10: Sign(moved_s=0.0, working=False)}
    for _ in range(10):
        world.tick()
    with pytest.raises(ServerGone, match="answered nothing for 10 s"):
        world.tick()
    assert world.calls == []
    assert (waits[0], waits[-2:]) == (2.0, [1.0, 0.5]), "it is not waited longer than until then"
