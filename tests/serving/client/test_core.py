"""The core of both clients, driven by a clock and a channel of the test: nothing waits and nothing is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest

from trimaran.core.errors import NotReady, Overloaded, RequestFailed, ServerError, TimedOut
from trimaran.serving.client import AsyncClient, Client, core
from trimaran.serving.client.core import ClientCore
from trimaran.serving.client.driver import run
from trimaran.serving.client.endpoint import endpoint_of

CONFIG = {
    "max_batch_size": 2,
    "input": [{"name": "TEXT"}],
    "output": [{"name": "EMBEDDING", "dims": ["1"]}],
}


class Clock:
    """Time passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class TestDriver:
    __test__ = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pauses: list[float] = []
        self.sizes: list[int] = []

    async def result(self, send: Callable[[], Any], *, within_s: float) -> Any:
        return send()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._clock.now += seconds

    async def together(self, work: Sequence[Callable[[], Coroutine[Any, Any, Any]]], *, within_s: float) -> list[Any]:
        self.sizes.append(len(work))
        # The last request is the first to be answered: the order of the answers must not depend on it.
        return [run(start()) for start in reversed(work)][::-1]


class Vectors:
    def __init__(self, texts: np.ndarray) -> None:
        self._texts = texts

    def get_response(self) -> dict[str, str]:
        return {"model_version": "1"}

    def as_numpy(self, output: str) -> np.ndarray:
        return np.array([[float(text[0])] for text in self._texts], np.float32)


class ScriptedChannel:
    """Raises the errors of its script one after the other, then answers. Each request takes `seconds`."""

    def __init__(self, clock: Clock, *errors: Exception, seconds: float = 0.0) -> None:
        self._clock, self._errors, self._seconds = clock, list(errors), seconds
        self.times_left: list[float] = []

    def config(self, endpoint: object, name: str, *, within_s: float) -> Any:
        if name != "m":
            raise RequestFailed("no such model")
        return {"config": CONFIG}

    def statistics(self, endpoint: object, *, within_s: float) -> Any:
        return {"model_stats": [{"name": "m", "version": "1"}]}

    def infer(self, endpoint: object, name: str, inputs: Any, outputs: object, *, within_s: float) -> Any:
        self.times_left.append(within_s)
        self._clock.now += self._seconds
        if self._errors:
            raise self._errors.pop(0)
        return Vectors(inputs["TEXT"])

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(core, "time", clock)
    return clock


def made(channel: ScriptedChannel, driver: TestDriver, **options: Any) -> ClientCore:
    settings: dict[str, Any] = {"timeout_s": 10.0, "concurrency": 1, "retries": 3, **options}
    return ClientCore(endpoint_of("h:1", "grpc", **settings), channel, driver)


def test_parts_are_joined_in_the_order_of_the_texts(clock: Clock) -> None:
    driver = TestDriver(clock)
    vectors = run(made(ScriptedChannel(clock), driver).embed("m", ["1", "2", "3", "4", "5"]))
    assert vectors.ravel().tolist() == [1, 2, 3, 4, 5]
    assert driver.sizes == [3]


def test_a_single_request_starts_nothing_beside_it(clock: Clock) -> None:
    driver = TestDriver(clock)
    assert run(made(ScriptedChannel(clock), driver).embed("m", "7")).tolist() == [7]
    assert driver.sizes == []


def test_what_was_never_sent_is_sent_again_after_a_pause(clock: Clock) -> None:
    driver = TestDriver(clock)
    channel = ScriptedChannel(clock, *(NotReady("away", sent=False) for _ in range(3)))
    assert run(made(channel, driver).embed("m", ["1"])).tolist() == [[1]]
    assert len(driver.pauses) == 3
    assert channel.times_left == sorted(channel.times_left, reverse=True), "pauses count towards the deadline"


@pytest.mark.parametrize(
    "error", [NotReady("gone", sent=True), Overloaded("busy"), RequestFailed("no"), TimedOut("late")], ids=repr
)
def test_anything_else_is_sent_once(clock: Clock, error: ServerError) -> None:
    channel, driver = ScriptedChannel(clock, error), TestDriver(clock)
    with pytest.raises(type(error)) as raised:
        run(made(channel, driver).embed("m", ["1"]))
    assert raised.value is error
    assert (len(channel.times_left), driver.pauses) == (1, [])


def test_the_last_of_the_retries_raises(clock: Clock) -> None:
    channel = ScriptedChannel(clock, *(NotReady("away", sent=False) for _ in range(9)))
    with pytest.raises(NotReady):
        run(made(channel, TestDriver(clock), retries=2).embed("m", ["1"]))
    assert len(channel.times_left) == 3


def test_all_requests_of_a_call_share_one_deadline(clock: Clock) -> None:
    channel = ScriptedChannel(clock, seconds=4.0)
    with pytest.raises(TimedOut, match="within 10 s"):
        run(made(channel, TestDriver(clock)).embed("m", [str(number) for number in range(10)]))
    assert channel.times_left == [10, 6, 2]


def test_an_error_of_the_callers_own_is_raised_as_it_is(clock: Clock) -> None:
    with pytest.raises(ZeroDivisionError):
        run(made(ScriptedChannel(clock, ZeroDivisionError()), TestDriver(clock)).embed("m", ["1"]))


def test_an_unknown_model_is_refused_with_those_that_are_ready(clock: Clock) -> None:
    with pytest.raises(RequestFailed, match="serves no model 'other'") as refused:
        run(made(ScriptedChannel(clock), TestDriver(clock)).embed("other", ["1"]))
    assert "Ready there: m." in str(refused.value.hint)


def test_a_view_shares_the_models_and_has_its_own_deadline(clock: Clock) -> None:
    channel = ScriptedChannel(clock)
    client = made(channel, TestDriver(clock))
    view = client.using(timeout_s=3.0)
    run(view.embed("m", ["1"]))
    assert channel.times_left == [3]
    assert run(client.model("m")) is run(view.model("m"))


def test_both_clients_have_every_method_with_one_signature() -> None:
    methods = [name for name, _ in inspect.getmembers(ClientCore, inspect.iscoroutinefunction) if name[0] != "_"]
    assert {"embed", "classify", "entities", "answer", "fill", "rerank", "tokens", "sparse", "query"} <= set(methods)
    for name in methods:
        blocking, waiting = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(blocking) == inspect.signature(waiting), name
        assert inspect.getdoc(blocking) == inspect.getdoc(waiting)
        assert not inspect.iscoroutinefunction(blocking)
