from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import children
from trimaran.core import isolation
from trimaran.core.errors import ChildError, ParityError, ToolError
from trimaran.core.isolation import Worker, first_restriction_that_runs

DEADLINE_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_child_that_dies_is_named_by_its_signal(number: signal.Signals) -> None:
    with pytest.raises(ChildError) as caught:
        isolation.run(children.die, DEADLINE_S, number=int(number))
    assert caught.value.reason == number.name
    assert number.name in str(caught.value)


def test_a_child_that_hangs_is_ended_at_its_deadline() -> None:
    with Worker() as worker:
        worker.call(os.getpid, DEADLINE_S)
        with pytest.raises(ChildError, match=r"gave no answer within 0\.3 s"):
            worker.call(children.hang, 0.3)


def test_a_child_out_of_memory_says_so() -> None:
    with Worker(memory_limit_bytes=2 << 30) as worker:
        with pytest.raises(ChildError) as caught:
            worker.call(children.eat, DEADLINE_S, size_bytes=8 << 30)
    assert caught.value.reason == "out of memory"


def test_our_own_errors_come_back_as_themselves() -> None:
    with pytest.raises(ParityError) as caught:
        isolation.run(children.refuse, DEADLINE_S)
    assert caught.value.observed == 0.3
    assert str(caught.value) == "embedding differs by 0.3. Look at it."


def test_any_other_failure_names_its_class_and_the_log(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    with Worker(log=log) as worker, pytest.raises(ToolError, match="LookupError: no such thing"):
        worker.call(children.fail, DEADLINE_S)
    assert "Traceback" in log.read_text()


def test_what_a_child_prints_does_not_spoil_its_answer() -> None:
    assert isolation.run(children.chatter, DEADLINE_S) == "kept"


def test_a_child_ends_at_once_and_what_it_said_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    with Worker(log=log) as worker:
        worker.call(children.end_slowly, DEADLINE_S)
    assert worker._process.returncode == 0, "it was not killed"
    assert log.read_text() == "said before the end\n"


def test_objects_live_in_their_worker() -> None:
    with Worker() as worker:
        first = worker.hold(children.Counter, DEADLINE_S, start=40)
        second = worker.hold(children.Counter, DEADLINE_S, 0)
        assert first.call(children.Counter.add, DEADLINE_S, amount=1) == 41
        assert first.call(children.Counter.add, DEADLINE_S, 1) == 42
        assert second.call(children.Counter.add, DEADLINE_S, amount=1) == 1
        assert worker.peak_memory_bytes > 1 << 20


def test_a_released_object_is_gone_and_its_neighbours_stay() -> None:
    with Worker() as worker:
        first, second = (worker.hold(children.Counter, DEADLINE_S, start) for start in (1, 2))
        first.release()
        assert second.call(children.Counter.add, DEADLINE_S, amount=1) == 3
        with pytest.raises(ToolError, match="NoneType"):
            first.call(children.Counter.add, DEADLINE_S, amount=1)


def test_what_a_child_could_not_import_is_refused_before_it_is_sent() -> None:
    with pytest.raises(TypeError, match=r"top level, found tests.core.test_isolation:.*<lambda>"):
        isolation.target_of(lambda: None)
    assert isolation.target_of(children.Counter.add) == "tests.children:Counter.add"


def test_a_script_is_imported_by_the_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "lever.py").write_text(
        "from trimaran.core import isolation\n"
        "def answer(): return 42\n"
        "if __name__ == '__main__': print(isolation.run(answer, 60.0))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, str(tmp_path / "lever.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"


def test_sigill_is_tried_again_under_a_narrower_instruction_set() -> None:
    def attempt(environment: dict[str, str]) -> str:
        with Worker(environment=environment) as worker:
            return worker.call(children.advertise_too_much, DEADLINE_S)

    result, restriction = first_restriction_that_runs(attempt)
    assert result == "ran"
    assert restriction == {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}


def test_another_signal_is_not_tried_again() -> None:
    seen = []

    def attempt(environment: dict[str, str]) -> None:
        seen.append(environment)
        isolation.run(children.die, DEADLINE_S, number=int(signal.SIGSEGV))

    with pytest.raises(ChildError, match="SIGSEGV"):
        first_restriction_that_runs(attempt)
    assert seen == [{}]


def test_a_child_dies_with_its_parent() -> None:
    code = (
        "import os, signal, sys; from trimaran.core.isolation import Worker\n"
        "worker = Worker(); print(worker.call(os.getpid, 60.0)); sys.stdout.flush()\n"
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
    assert isolation.run(children.telemetry_there, DEADLINE_S) is False
