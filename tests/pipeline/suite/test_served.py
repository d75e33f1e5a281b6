"""Load on a real Triton that serves the tiny encoder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.worlds import TEXTS, processes_with, tiny_repository
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.finals import final, knee
from trimaran.benchmarks.scenarios.results import Wire
from trimaran.benchmarks.scenarios.settings import (
    AnyScenarioSettings,
    ClosedLoopSettings,
    OfflineSettings,
    OpenLoopSettings,
    SingleStreamSettings,
    SuiteUnit,
)
from trimaran.core.store import HOME_VARIABLE
from trimaran.pipeline.suite.load_driver import ServedTarget, statistics
from trimaran.pipeline.suite.served import run_served
from trimaran.pipeline.suite.served_scenarios import between_rates
from trimaran.serving.triton import installation
from trimaran.serving.triton.server import Server, launch

pytest.importorskip("mlperf_loadgen", reason="trimaran[bench] is not installed")
HEAD = {"candidate": "tiny", "threads": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if reason := installation.why_not():
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(tmp_path_factory.mktemp("home")))
        with launch(tiny_repository(tmp_path_factory.mktemp("served")), drain=False) as running:
            yield running


def target(server: Server) -> ServedTarget:
    return ServedTarget(
        kind="triton",
        model="vectors",
        task="embedding",
        urls={"grpc": server.grpc_url, "http": server.http_url},
        statistics=server.http_url,
    )


def asked_of(server: Server, asked: AnyScenarioSettings, wire: Wire) -> results.ScenarioResult:
    unit = SuiteUnit(asked=asked, at="served", wire=wire)
    return run_served(unit, target=target(server), head=HEAD, texts=TEXTS, used=None)


@pytest.mark.parametrize("wire", ["grpc", "http"])
def test_a_single_stream_over_the_wire_is_split_by_tritons_own_counters(server: Server, wire: Wire) -> None:
    asked = SingleStreamSettings(scenario="single-stream", samples=20, time_s=0.0, rounds=2, warmup=3)
    found = asked_of(server, asked, wire)
    assert isinstance(found, results.SingleStream) and found.cut is None
    assert [len(turn.samples_ns) for turn in found.rounds] == [21, 21], "whole passes over seven texts"
    assert found.server is not None
    assert found.server.requests >= 42
    mean_ns = sum(sum(turn.samples_ns) for turn in found.rounds) / 42
    inside_ns = (found.server.queue_ns + found.server.compute_infer_ns) / found.server.requests
    assert 0 < inside_ns < mean_ns, "what the server counts is part of what the caller waits"
    assert found.driver.startswith("mlperf-loadgen")


def test_more_callers_are_swept_and_have_a_knee(server: Server) -> None:
    asked = ClosedLoopSettings(scenario="closed-loop", concurrency=(1, 3), samples=20, time_s=0.0)
    found = asked_of(server, asked, "grpc")
    assert isinstance(found, results.ClosedLoop) and found.cut is None
    assert [point.concurrency for point in found.points] == [1, 3]
    assert all(len(point.latencies_ns) >= 20 and not point.failures for point in found.points)
    assert knee(found) is not None


def test_an_open_loop_brackets_the_rate_that_holds_the_budget(server: Server) -> None:
    asked = OpenLoopSettings(
        scenario="open-loop", budget_ms=1e-3, shares_of_one_caller=(0.2, 0.4), refine=1, samples=10, time_s=0.0
    )
    found = asked_of(server, asked, "grpc")
    assert isinstance(found, results.OpenLoop) and found.cut is None
    assert len(found.points) == 2, "a budget that nothing holds ends the rise at once, and is looked for once below"
    figure = final(found)
    assert figure is not None and figure.value == 0.0 and figure.high == found.points[0].rate_per_s
    generous = asked_of(server, asked.model_copy(update={"budget_ms": 60_000.0}), "grpc")
    assert isinstance(generous, results.OpenLoop)
    assert final(generous)[1] == generous.points[-1].rate_per_s  # type: ignore[index]
    assert between_rates(generous) is None


def test_rates_too_low_for_their_samples_in_time_are_cut(server: Server) -> None:
    asked = OpenLoopSettings(
        scenario="open-loop", shares_of_one_caller=(1e-3,), refine=0, samples=10_000, time_s=0.0, limit_s=1.0
    )
    found = asked_of(server, asked, "grpc")
    assert isinstance(found, results.OpenLoop)
    assert found.cut is not None and "never reached its samples" in found.cut and found.cut_by == "samples"
    assert len(found.points) == 1


def test_offline_answers_every_text(server: Server) -> None:
    found = asked_of(server, OfflineSettings(scenario="offline", at=("served",), rounds=2, callers=3), "http")
    assert isinstance(found, results.Offline)
    assert [run.texts for run in found.passes] == [len(TEXTS)] * 2


def test_counters_of_a_model_that_is_not_there_are_none(server: Server) -> None:
    here = target(server)
    assert statistics(here) is not None
    assert statistics(ServedTarget("triton", "nobody", "embedding", here.urls, here.statistics)) is None


def test_a_server_that_dies_in_the_middle_leaves_what_it_answered(tmp_path: Path) -> None:
    if reason := installation.why_not():
        pytest.skip(reason)
    with launch(tiny_repository(tmp_path), drain=False) as running:
        binaries = [pid for pid in processes_with(str(running.repository)) if _is_triton(pid)]

        def kill() -> None:
            while (counted := statistics(target(running))) is not None and counted.requests < 60:
                time.sleep(0.01)
            for pid in binaries:
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        asked = ClosedLoopSettings(
            scenario="closed-loop", concurrency=(2, 4), samples=10**6, time_s=60.0, limit_s=120.0
        )
        found = asked_of(running, asked, "grpc")
        killer.join()
    assert isinstance(found, results.ClosedLoop)
    assert found.cut is not None and "stopped answering at 2 callers" in found.cut
    assert len(found.points) == 1 and found.points[0].latencies_ns


def _is_triton(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip().startswith("tritonserver")
