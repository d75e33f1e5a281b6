"""What the watchdog takes for a death, decided on made-up processes and answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trimaran.core.errors import NotReady, RequestFailed
from trimaran.runtime.pulse import Sign
from trimaran.serving.triton import control, processes, readiness, watchdog
from trimaran.serving.triton.processes import Stub
from trimaran.serving.triton.watchdog import Care, ServerGone, Watchdog

FIRST, SECOND = Stub("m", "1"), Stub("m", "2")


class World:
    """A server of one model: what its processes, its index and its canaries say, and what was loaded again."""

    def __init__(self, patch: pytest.MonkeyPatch, care: Care | None = None) -> None:
        self.stubs: dict[int, Stub] = {10: FIRST}
        self.signs: dict[int, Sign] = {}
        self.ready: dict[str, str] = {"1": "READY"}
        self.canary: Exception | None = None
        self.finished, self.instances = 0, 1
        self.alive, self.memory = True, 0
        self.calls: list[str] = []
        self.reloads: list[str] = []
        self.now_s = 1000.0
        patch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        patch.setattr(processes, "stubs_of", lambda keeper: dict(self.stubs))
        patch.setattr(watchdog, "sign_of", lambda folder, pid: self.signs.get(pid))
        patch.setattr(processes, "kill_stubs", lambda keeper, model: self.calls.append("kill"))
        patch.setattr(processes, "memory_bytes", lambda keeper: self.memory)
        patch.setattr(control, "index", lambda address: [control.Entry("m", v, s, "") for v, s in self.ready.items()])
        patch.setattr(control, "instances", lambda address, model: self.instances)
        patch.setattr(control, "finished", lambda address, model: self.finished)
        patch.setattr(control, "unload", lambda address, model: self.calls.append("unload"))
        patch.setattr(control, "load", lambda address, model: self.calls.append("load"))
        patch.setattr(readiness, "sing", self._sing)
        server: Any = SimpleNamespace(
            host="127.0.0.1",
            ports=SimpleNamespace(http=1),
            keeper_pid=1,
            pulses=Path("pulses"),
            models=("m",),
            alive=lambda: self.alive,
        )
        care = care or Care(canary_s=1.0, hang_s=30.0)
        self.watchdog = Watchdog(server, care, on_reload=lambda model, reason: self.reloads.append(reason))

    def tick(self, after_s: float = 1.0) -> None:
        self.now_s += after_s
        self.watchdog.tick()

    def _sing(self, port: int, model: str, **_: object) -> None:
        if self.canary and self.calls[-1:] != ["load"]:
            raise self.canary


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(monkeypatch)
    world.tick()
    return world


def test_a_stub_that_is_gone_from_a_ready_version_means_death(world: World) -> None:
    world.stubs = {}
    world.tick()
    assert world.reloads == ["its python stub died"]
    assert world.calls == ["kill", "unload", "load"]


def test_one_of_two_instances_is_missed(world: World) -> None:
    world.stubs, world.instances = {10: FIRST, 11: FIRST}, 2
    world.tick()
    world.stubs = {10: FIRST}
    world.tick()
    assert len(world.reloads) == 1


def test_a_stub_that_outlived_its_models_loading_is_not_missed(world: World) -> None:
    world.stubs = {10: FIRST, 11: FIRST}
    world.tick()
    world.stubs = {11: FIRST}
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
    world.stubs, world.ready = stubs, ready
    world.tick()
    assert world.reloads == []


def test_stubs_that_start_while_the_index_is_read_are_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old ones have gone, and by the time Triton calls the version ready there are new ones."""

    def ready_again(address: object) -> list[control.Entry]:
        world.stubs = {12: FIRST}
        return [control.Entry("m", "1", "READY", "")]

    world.stubs = {}
    monkeypatch.setattr(control, "index", ready_again)
    world.tick()
    assert world.reloads == []


def test_a_canary_that_met_a_change_of_versions_is_sung_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [NotReady("the version goes", status=500)]

    def sing(*_: object, **__: object) -> None:
        if faults:
            raise faults.pop()

    monkeypatch.setattr(readiness, "sing", sing)
    world.tick()
    assert world.reloads == [] and not faults


def test_nonsense_and_errors_mean_death_but_absence_and_overload_do_not(world: World) -> None:
    for status in (404, 400, 503):
        world.canary = NotReady("no", status=status)
        world.tick()
    assert world.reloads == []
    world.canary = NotReady("zeros", status=200)
    world.tick()
    assert world.reloads == ["it answers a canary with nonsense or an error"]


def test_silence_is_a_death_only_when_nothing_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Care(canary_s=1.0, hang_s=10.0))
    world.canary = NotReady("no answer in time")
    for world.finished in range(1, 20):
        world.tick()
    assert world.reloads == []
    for _ in range(11):
        world.tick()
    assert world.reloads == ["it finished nothing for 10 s"]


@pytest.mark.parametrize("canary", [None, NotReady("no answer in time")], ids=["the other answers", "silence"])
def test_one_of_two_stubs_that_does_not_move_is_missed(world: World, canary: Exception | None) -> None:
    world.stubs, world.instances, world.canary = {10: FIRST, 11: FIRST}, 2, canary
    begun_s = world.now_s
    for world.finished in range(29):
        world.signs = {10: Sign(begun_s, True), 11: Sign(world.now_s, False)}
        world.tick()
    assert world.reloads == []
    for _ in range(2):
        world.tick()
    assert world.reloads == ["one of its python stubs did not move for 30 s"]


def test_a_stub_that_works_on_something_long_is_left_alone(world: World) -> None:
    world.canary = NotReady("no answer in time")
    for _ in range(60):
        world.signs = {10: Sign(world.now_s, True)}
        world.tick()
    assert world.reloads == []
    for _ in range(32):
        world.signs = {10: Sign(world.now_s, False)}
        world.tick()
    assert world.reloads == ["it finished nothing for 30 s"]


def test_a_model_that_will_not_load_is_tried_again_and_ever_more_rarely(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: object, model: str) -> None:
        raise RequestFailed("no memory")

    good = control.load
    monkeypatch.setattr(control, "load", refuse)
    world.stubs = {}
    for _ in range(16):
        world.tick()
    assert world.calls.count("unload") == 4, "at once, then after 2, 4 and 8 s"
    assert world.reloads == []
    monkeypatch.setattr(control, "load", good)
    world.tick(16.0)
    assert len(world.reloads) == 1


def test_a_dead_server_and_one_beyond_its_memory_must_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, Care(memory_limit_bytes=1 << 20))
    world.tick()
    world.memory = 3 << 20
    with pytest.raises(ServerGone, match="3 MiB of memory, more than its limit of 1 MiB"):
        world.tick()
    world.alive = False
    with pytest.raises(ServerGone, match="ended by itself"):
        world.tick()
