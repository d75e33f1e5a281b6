from __future__ import annotations

import threading
import time

import pytest

from trimaran.benchmarks.scenarios import loadgen
from trimaran.core.errors import NotReady

lg = pytest.importorskip("mlperf_loadgen", reason="trimaran[bench] is not installed")


class Answering:
    """A server in this process: counts who asked what, takes its time, and dies after so many answers."""

    def __init__(self, *, takes_s: float = 0.0, dies_after: int | None = None, refuses: frozenset[int] = frozenset()):
        self.asked: list[int] = []
        self._takes_s, self._dies_after, self._refuses = takes_s, dies_after, refuses
        self._lock = threading.Lock()

    def __call__(self, index: int) -> None:
        with self._lock:
            self.asked.append(index)
            number = len(self.asked)
        time.sleep(self._takes_s)
        if number in self._refuses or (self._dies_after is not None and number > self._dies_after):
            raise NotReady("No Triton answers at nowhere.")


def test_a_single_stream_asks_every_text_equally_often() -> None:
    ask = Answering()
    found = loadgen.single_stream(ask, texts=7, samples=20, time_s=0.0, limit_s=60)
    asked = ask.asked[1:]
    assert len(found.latencies_ns) == len(asked) == 21
    assert {asked.count(index) for index in range(7)} == {3}
    assert found.failures == 0 and found.dead is None


def test_a_stream_that_cannot_reach_its_samples_in_time_stops_at_what_it_can() -> None:
    found = loadgen.single_stream(Answering(takes_s=0.02), texts=4, samples=1000, time_s=0.0, limit_s=0.3)
    assert 1 <= len(found.latencies_ns) <= 15


def test_an_open_loop_counts_from_the_scheduled_moment() -> None:
    """One caller that takes 20 ms cannot keep up with 200 a second: waiting to be asked is part of the latency."""
    found = loadgen.open_loop([Answering(takes_s=0.02)], texts=5, rate_per_s=200, samples=40, time_s=0.0, seed=1)
    assert len(found.latencies_ns) == 40
    assert max(found.latencies_ns) > 10 * 20_000_000
    assert min(found.latencies_ns) >= 20_000_000


def test_offline_hands_over_all_texts_at_once() -> None:
    ask = Answering()
    found = loadgen.offline([ask] * 3, texts=10, passes=2)
    assert sorted(ask.asked) == sorted(list(range(10)) * 2)
    assert len(found.latencies_ns) == 20 and found.elapsed_ns > 0


def test_a_closed_loop_has_as_many_callers_as_asked() -> None:
    busy, most, lock = [0], [0], threading.Lock()

    def ask(index: int) -> None:
        with lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.005)
        with lock:
            busy[0] -= 1

    found = loadgen.closed_loop([ask] * 4, texts=3, samples=40, time_s=0.0, limit_s=30)
    assert most[0] == 4
    assert len(found.latencies_ns) >= 40


def test_single_failures_are_counted_and_their_latencies_left_out() -> None:
    ask = Answering(refuses=frozenset({3, 9}))
    found = loadgen.offline([ask], texts=20, passes=1)
    assert (len(found.latencies_ns), found.failures, found.dead) == (18, 2, None)


@pytest.mark.parametrize("kind", ["closed", "open", "offline"])
def test_a_server_that_dies_in_the_middle_ends_the_load_and_keeps_what_was_answered(kind: str) -> None:
    ask = Answering(dies_after=15)
    found = {
        "closed": lambda: loadgen.closed_loop([ask] * 2, texts=5, samples=10_000, time_s=60, limit_s=60),
        "open": lambda: loadgen.open_loop([ask] * 2, texts=5, rate_per_s=500, samples=100, time_s=0.0, seed=1),
        "offline": lambda: loadgen.offline([ask] * 2, texts=5, passes=20),
    }[kind]()
    assert found.dead == "No Triton answers at nowhere."
    assert len(found.latencies_ns) == 15
    assert len(ask.asked) < 30, "a dead server is not asked on and on"
