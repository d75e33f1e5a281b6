"""A wall clock that jumps under load is nobody's business: no answer fails, none is wrong, nothing is restarted."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import trimaran
from tests.serving.gateway.worlds import gateway
from tests.serving.triton.clock import JumpingClock, jumping_clock
from tests.serving.worlds import TEXTS, by_hand, eventually
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import daemon

PACKAGE = Path(trimaran.__file__).parent
# Who may look at the wall clock: only to write a date down.
WRITE_DATES = {"serving/gateway/access_log.py", "serving/gateway/keys.py"}
JUMPS_S = (3600, -7200, 5 * 365 * 86400, 0)


@pytest.mark.parametrize("part", ["serving", "runtime"])
def test_whoever_waits_looks_at_the_monotonic_clock(part: str) -> None:
    found = set()
    for path in (PACKAGE / part).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now"):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found <= WRITE_DATES


@pytest.mark.usefixtures("triton")
@pytest.mark.timeout(240)
def test_a_clock_that_jumps_under_load_fails_no_request(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    clock = jumping_clock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    clock.jump_to(86400)
    assert abs(_elsewhere() - time.time() - 86400) < 3600, "the library does not move the clock"
    clock.jump_to(0)
    state = daemon.serve_detached(tmp_path / "r")
    try:
        with gateway(tmp_path / "r", f"127.0.0.1:{state.grpc_port}", tmp_path / "g", "--rate", 100000) as front:
            right, wrong = _asked_while(clock, state.grpc_port)
            answer = front.ask("/v1/embeddings", {"model": "m", "input": "the cat sat"})
            clock.jump_to(7200)
            assert (answer.status, front.ask("/readyz", key="").status) == (200, 200)
            assert front.ask("/v1/embeddings", {"model": "m", "input": "the cat sat"}).body == answer.body
            stamps = sorted(datetime.fromisoformat(line["time"]) for line in front.log_lines())
        assert (wrong, right > 0) == ([], True)
        counted = next(one for one in daemon.running() if one.pid == state.pid)
        assert (counted.reloads, counted.restarts) == (0, 0)
        assert stamps[-1] - stamps[0] > timedelta(hours=1), "the gateway did not see the clock jump"
    finally:
        daemon.stop(tmp_path / "r")


def _asked_while(clock: JumpingClock, port: int) -> tuple[int, list[str]]:
    """Right answers, and whatever else came back, while the clock jumps; a few after each jump."""
    ended, wrong, right = threading.Event(), list[str](), list[int]()
    wanted = by_hand(TEXTS)

    def ask() -> None:
        with Client(f"127.0.0.1:{port}", retries=0, timeout_s=30) as client:
            while not ended.is_set():
                try:
                    found = client.embed("m", TEXTS)
                except Exception as error:  # a failed request is what this looks for
                    wrong.append(repr(error))
                    return
                if not np.allclose(found, wanted, atol=1e-6):
                    wrong.append(f"{np.abs(found - wanted).max()} apart")
                right.append(1)

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for seconds in JUMPS_S:
            before = len(right)
            clock.jump_to(seconds)
            # A canary of the watchdog passes, and callers get answers.
            assert eventually(lambda before=before: wrong or len(right) > before + 20)
            time.sleep(1.5)
    finally:
        ended.set()
        for caller in callers:
            caller.join()
    return len(right), wrong


def _elsewhere() -> float:
    """The time as a fresh process sees it."""
    done = subprocess.run(
        [sys.executable, "-c", "import json, time; print(json.dumps(time.time()))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout))
