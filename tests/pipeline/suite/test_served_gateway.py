"""Load through a real gateway before a real Triton."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.gateway.worlds import gateway
from tests.serving.worlds import TEXTS, tiny_repository
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.settings import SingleStreamSettings, SuiteUnit
from trimaran.core.errors import UsageError
from trimaran.core.store import HOME_VARIABLE
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.pipeline.suite.served import run_served
from trimaran.serving.triton import installation
from trimaran.serving.triton.server import launch

ASKED = SingleStreamSettings(scenario="single-stream", samples=14, time_s=0.0, rounds=1, warmup=2)
UNIT = SuiteUnit(asked=ASKED, at="served", wire="http")
HEAD = {"candidate": "tiny", "threads": 1}


def test_a_gateway_is_asked_as_its_users_ask_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlperf_loadgen", reason="trimaran[bench] is not installed")
    if reason := installation.why_not():
        pytest.skip(reason)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    texts = [text for text in TEXTS if text]
    with (
        launch(tiny_repository(tmp_path), drain=False) as server,
        gateway(server.repository, server.grpc_url, tmp_path) as running,
    ):
        target = ServedTarget(
            kind="gateway",
            model="vectors",
            task="embedding",
            urls={"http": running.url},
            statistics=server.http_url,
            key=running.key,
        )
        found = run_served(UNIT, target=target, head=HEAD, texts=texts, used=None)
    assert isinstance(found, results.SingleStream)
    assert found.cut is None and found.target == "gateway"
    assert len(found.rounds[0].samples_ns) == 18, "whole passes over six texts"
    assert found.server is not None and found.server.requests >= 18


def test_a_task_that_the_gateway_is_not_measured_for_is_refused(tmp_path: Path) -> None:
    target = ServedTarget(kind="gateway", model="m", task="rerank", urls={"http": "http://127.0.0.1:9"})
    with pytest.raises(UsageError, match="not measured for rerank"):
        run_served(UNIT, target=target, head=HEAD, texts=TEXTS, used=None)
