"""Load on a live server. MLPerf's LoadGen issues and times the requests; the closed loop of callers is our own."""

from __future__ import annotations

import itertools
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from trimaran.core.environment import version_of
from trimaran.core.errors import ServerError, UnavailableError, install_hint
from trimaran.core.scratch import ScratchFolder
from trimaran.core.spec import Frozen

AskText = Callable[[int], object]
LoadgenScenario = Literal["SingleStream", "Server", "Offline"]
# A server that fails this many requests in a row counts as dead, and no more requests are sent.
DEAD_AFTER = 5
_SAMPLE = re.compile(
    r'"name":"Sample","cat":"default","ph":"b".*?"ts":(?P<ts>[\d.]+),"args":\{"sample_seq":(?P<seq>\d+),'
    r'.*?"complete_ns":(?P<ns>\d+)\}'
)


class Load(Frozen):
    """The answers to one load."""

    elapsed_ns: int
    # From the moment that LoadGen had scheduled.
    latencies_ns: tuple[int, ...]
    failures: int = 0
    # The last error of a server that counts as dead.
    dead: str | None = None


def driver() -> str:
    """LoadGen's name and version. Raises UnavailableError with the install command."""
    version = version_of("mlcommons-loadgen")
    if version is None:
        raise UnavailableError(
            "Load on a server is made by MLPerf's LoadGen, which is not installed.",
            hint=install_hint("bench"),
        )
    return f"mlperf-loadgen {version}"


def single_stream(ask: AskText, *, texts: int, samples: int, time_s: float, limit_s: float) -> Load:
    """One request at a time, in whole passes over the texts, for enough samples AND enough time."""
    begun_ns = time.perf_counter_ns()
    ask(0)
    once_s = max(1e-5, (time.perf_counter_ns() - begun_ns) / 1e9)
    wanted = max(samples, math.ceil(time_s / once_s))
    possible = max(1, min(wanted, math.floor(limit_s / once_s)))
    whole = possible if possible < wanted else texts * math.ceil(wanted / texts)
    return run("SingleStream", [ask], texts=texts, samples=whole, expected_ns=int(once_s * 1e9))


def open_loop(
    asks: Sequence[AskText], *, texts: int, rate_per_s: float, samples: int, time_s: float, seed: int
) -> Load:
    """Poisson arrivals at a rate; each of `asks` is one connection, and there must be enough of them."""
    wanted = max(samples, math.ceil(time_s * rate_per_s))
    return run("Server", asks, texts=texts, samples=wanted, rate_per_s=rate_per_s, seed=seed)


def offline(asks: Sequence[AskText], *, texts: int, passes: int) -> Load:
    """All texts handed over at once, `passes` times each."""
    return run("Offline", asks, texts=texts, samples=texts * passes)


def closed_loop(asks: Sequence[AskText], *, texts: int, samples: int, time_s: float, limit_s: float) -> Load:
    """Each of `asks` is a caller that asks again when answered, until enough samples AND enough time are reached."""
    attempts = _Attempts()
    turns = itertools.count()
    latencies: list[list[int]] = [[] for _ in asks]
    begun_s = time.monotonic()

    def enough() -> bool:
        spent_s = time.monotonic() - begun_s
        answered = sum(map(len, latencies))
        return attempts.dead is not None or spent_s >= limit_s or (answered >= samples and spent_s >= time_s)

    def call(ask: AskText, mine: list[int]) -> None:
        while not enough():
            index = next(turns) % texts
            asked_ns = time.perf_counter_ns()
            if attempts.made(ask, index):
                mine.append(time.perf_counter_ns() - asked_ns)

    callers = [threading.Thread(target=call, args=pair) for pair in zip(asks, latencies, strict=True)]
    begun_ns = time.perf_counter_ns()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return Load(
        elapsed_ns=time.perf_counter_ns() - begun_ns,
        latencies_ns=tuple(sample for caller in latencies for sample in caller),
        failures=attempts.failures,
        dead=attempts.dead,
    )


def run(
    kind: LoadgenScenario,
    asks: Sequence[AskText],
    *,
    texts: int,
    samples: int,
    rate_per_s: float = 1.0,
    expected_ns: int = 1_000_000,
    seed: int = 0,
) -> Load:
    """One LoadGen test of exactly `samples` requests over the texts, which it permutes anew for each pass."""
    driver()
    import mlperf_loadgen as lg

    settings = lg.TestSettings()
    settings.scenario = getattr(lg.TestScenario, kind)
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = 0
    settings.min_query_count = settings.max_query_count = samples
    settings.sample_concatenate_permutation = True
    settings.single_stream_expected_latency_ns = expected_ns
    settings.server_target_qps = rate_per_s
    settings.offline_expected_qps = 1.0
    settings.schedule_rng_seed = settings.sample_index_rng_seed = settings.qsl_rng_seed = seed
    attempts = _Attempts()
    waiting: queue.SimpleQueue[tuple[int, int, int] | None] = queue.SimpleQueue()
    issued = itertools.count()
    failed: set[int] = set()

    def issue(queries: Sequence[Any]) -> None:
        for query in queries:
            waiting.put((next(issued), query.id, query.index))

    def answer(ask: AskText) -> None:
        while (item := waiting.get()) is not None:
            number, identity, index = item
            if not attempts.made(ask, index):
                failed.add(number)
            lg.QuerySamplesComplete([lg.QuerySampleResponse(identity, 0, 0)])

    workers = [threading.Thread(target=answer, args=(ask,), daemon=True) for ask in asks]
    for worker in workers:
        worker.start()
    with ScratchFolder("loadgen") as folder:
        logs = lg.LogSettings()
        logs.enable_trace = True
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        system, library = lg.ConstructSUT(issue, lambda: None), lg.ConstructQSL(texts, texts, _ignore, _ignore)
        try:
            lg.StartTestWithLogSettings(system, library, settings, logs)
        finally:
            for _ in workers:
                waiting.put(None)
            for worker in workers:
                worker.join()
            lg.DestroyQSL(library)
            lg.DestroySUT(system)
        return load_from_trace((Path(folder) / "mlperf_log_trace.json").read_text("utf-8"), failed, attempts.dead)


def load_from_trace(trace: str, failed: set[int], dead: str | None) -> Load:
    """LoadGen's own record of each sample: when it was due, and how long after that it was complete.

    The trace is read by a regular expression, because it is not valid JSON: its keys are quoted twice.
    """
    samples = [(float(m["ts"]) * 1e3, int(m["seq"]), int(m["ns"])) for m in _SAMPLE.finditer(trace)]
    if not samples:
        return Load(elapsed_ns=0, latencies_ns=(), failures=len(failed), dead=dead)
    first = min(due for due, _, _ in samples)
    last = max(due + took for due, _, took in samples)
    return Load(
        elapsed_ns=max(1, int(last - first)),
        latencies_ns=tuple(
            took for _, number, took in sorted(samples, key=lambda sample: sample[1]) if number not in failed
        ),
        failures=len(failed),
        dead=dead,
    )


class _Attempts:
    """Counts requests that fail; after too many failures in a row no more are sent."""

    def __init__(self) -> None:
        self.failures = 0
        self.dead: str | None = None
        self._in_a_row = 0
        self._lock = threading.Lock()

    def made(self, ask: AskText, index: int) -> bool:
        if self.dead is not None:
            with self._lock:
                self.failures += 1
            return False
        try:
            ask(index)
        except ServerError as error:
            with self._lock:
                self.failures += 1
                self._in_a_row += 1
                if self._in_a_row >= DEAD_AFTER:
                    self.dead = self.dead or str(error)
            return False
        self._in_a_row = 0
        return True


def _ignore(indices: Sequence[int]) -> None:
    pass
