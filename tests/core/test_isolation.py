from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimaran.core import isolation
from trimaran.core.errors import ChildError, ParityError, ToolError
from trimaran.core.isolation import Worker, first_restriction_that_runs

DEADLINE_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_child_that_dies_is_named_by_its_signal(number: signal.Signals, tmp_path: Path) -> None:
    with pytest.raises(ChildError) as caught:
        isolation.run("tests.children:die", deadline_s=DEADLINE_S, log=tmp_path / "log", number=int(number))
    assert caught.value.reason == number.name
    assert number.name in str(caught.value)


def test_a_child_that_hangs_is_ended_at_its_deadline() -> None:
    with Worker() as worker:
        worker.call("os:getpid", deadline_s=DEADLINE_S)
        with pytest.raises(ChildError, match=r"gave no answer within 0\.3 s"):
            worker.call("tests.children:hang", deadline_s=0.3)


def test_a_child_out_of_memory_says_so() -> None:
    with Worker(memory_limit_bytes=2 << 30) as worker:
        with pytest.raises(ChildError) as caught:
            worker.call("tests.children:eat", deadline_s=DEADLINE_S, size_bytes=8 << 30)
    assert caught.value.reason == "out of memory"


def test_our_own_errors_come_back_as_themselves() -> None:
    with pytest.raises(ParityError) as caught:
        isolation.run("tests.children:refuse", deadline_s=DEADLINE_S)
    assert caught.value.observed == 0.3
    assert str(caught.value) == "embedding differs by 0.3. Look at it."


def test_any_other_failure_names_its_class_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    with pytest.raises(ToolError, match="LookupError: no such thing"):
        isolation.run("tests.children:fail", deadline_s=DEADLINE_S, log=log)
    assert "Traceback" in log.read_text()


def test_what_a_child_prints_does_not_spoil_its_answer(tmp_path: Path) -> None:
    assert isolation.run("tests.children:chatter", deadline_s=DEADLINE_S, log=tmp_path / "log") == "kept"


def test_an_object_lives_in_its_worker() -> None:
    with Worker() as worker:
        worker.call("tests.children:Counter", deadline_s=DEADLINE_S, start=40)
        assert worker.call(".add", deadline_s=DEADLINE_S, amount=1) == 41
        assert worker.call(".add", deadline_s=DEADLINE_S, amount=1) == 42
        assert worker.peak_memory_bytes > 1 << 20


def test_sigill_is_tried_again_under_a_narrower_instruction_set() -> None:
    result, restriction = first_restriction_that_runs(
        lambda environment: isolation.run(
            "tests.children:advertise_too_much", deadline_s=DEADLINE_S, environment=environment
        )
    )
    assert result == "ran"
    assert restriction == {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}


def test_another_signal_is_not_tried_again() -> None:
    seen = []

    def attempt(environment: dict[str, str]) -> None:
        seen.append(environment)
        isolation.run("tests.children:die", deadline_s=DEADLINE_S, number=int(signal.SIGSEGV))

    with pytest.raises(ChildError, match="SIGSEGV"):
        first_restriction_that_runs(attempt)
    assert seen == [{}]


def test_a_child_dies_with_its_parent() -> None:
    code = (
        "import os, signal, sys; from trimaran.core.isolation import Worker\n"
        "worker = Worker(); print(worker.call('os:getpid', deadline_s=60)); sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child outlived its parent")


def test_a_child_tells_nobody_what_it_converts() -> None:
    """OpenVINO's tools would send usage data without asking."""
    assert isolation.run("tests.children:telemetry_there", deadline_s=60.0) is False
