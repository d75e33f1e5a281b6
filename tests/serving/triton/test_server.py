"""A server's life: it starts or says why, drains, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.serving.worlds import (
    by_hand,
    eventually,
    processes_with,
    shared_memory_with,
    slow_repository,
)
from tests.tiny import tiny_artifact
from trimaran.core.digests import list_digests
from trimaran.core.errors import Overloaded, TimedOut, ToolError, TrimaranError, UsageError
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import pin
from trimaran.serving.client import Client
from trimaran.serving.triton import ports
from trimaran.serving.triton.server import launch

pytestmark = pytest.mark.usefixtures("triton")


def traces(pid: int | None = None) -> set[int | str]:
    """Processes and shared memory of the servers that a process (this one) started."""
    word = f"trimaran-{pid or os.getpid()}-"
    return {*processes_with(word), *shared_memory_with(word)}


@pytest.fixture
def already_there() -> set[int | str]:
    """Of servers that other tests still keep."""
    return traces()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    return tmp_path / "r"


def test_a_closed_server_leaves_no_process_no_memory_and_no_folder(
    repository: Path, already_there: set[int | str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with launch(repository) as server:
        assert server.alive()
        assert any(isinstance(trace, str) for trace in traces() - already_there), "its shared memory is named after us"
    server.close()
    assert not server.alive()
    assert traces() <= already_there
    assert not list(tmp_path.glob("trimaran-triton-*"))


def test_a_promoted_version_is_served_after_a_relaunch(repository: Path, tmp_path: Path) -> None:
    with launch(repository) as server, Client(server.grpc_url) as client:
        first = client.embed("m", ["the cat"])
    lay_out(tiny_artifact(tmp_path / "s", backend="openvino"), repository=repository, name="m", rows="alone", threads=1)
    pin(repository, "m", 2)
    with launch(repository) as server, Client(server.grpc_url) as client:
        second = client.embed("m", ["the cat"])
        assert server.models == ("m",), "what nobody calls is not in memory"
        server.load("m_openvino")
        assert server.models == ("m", "m_openvino")
        import tritonclient.http as triton

        with triton.InferenceServerClient(server.http_url) as plain:
            assert plain.get_model_metadata("m")["versions"] == ["2"]
    np.testing.assert_allclose(first, by_hand(["the cat"]), atol=1e-6)
    np.testing.assert_allclose(second, first, atol=1e-6)


def test_a_given_port_in_use_is_named(repository: Path, already_there: set[int | str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"Port {port} is already in use.*--grpc-port"):
            launch(repository, grpc_port=port)
    assert traces() <= already_there


def test_a_picked_port_lost_to_another_is_picked_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        free = ports.choose(http=None, grpc=None, metrics=None)
        lost = free._replace(grpc=taken.getsockname()[1])
        answers = iter([lost, free])
        monkeypatch.setattr(ports, "choose", lambda **_: next(answers))
        with launch(repository) as server:
            assert server.ports == free


@pytest.mark.parametrize("given", [{"http_port": 70000}, {"http_port": 4711, "grpc_port": 4711}])
def test_impossible_ports_are_refused(repository: Path, given: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="port"):
        launch(repository, **given)  # type: ignore[arg-type]


def test_a_corrupt_model_is_a_tool_error_with_the_reason_and_the_log(
    repository: Path, already_there: set[int | str]
) -> None:
    model = repository / "m" / "1" / "model.onnx"
    model.unlink()
    model.write_bytes(b"not a graph")
    # Listed as if it had been published so: otherwise it is refused before Triton starts.
    list_digests(model.parent, model="m", version=1)
    with pytest.raises(ToolError, match=r"did not start.*(?i:protobuf)") as caught:
        launch(repository)
    assert Path(caught.value.facts["log"]).is_file()
    assert str(caught.value.facts["log"]) in str(caught.value)
    assert traces() <= already_there


def test_a_model_that_answers_zeros_does_not_pass_for_ready(tmp_path: Path, already_there: set[int | str]) -> None:
    repository = slow_repository(tmp_path)
    model = repository / "slow" / "1" / "model.py"
    model.write_text(model.read_text().replace("len(text)]", "0]"))
    with pytest.raises(ToolError, match="senseless EMBEDDING"):
        launch(repository)
    assert traces() <= already_there


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_stub_that_dies_in_its_first_canary_is_forgiven_once(
    tmp_path: Path, already_there: set[int | str], deaths: int
) -> None:
    """Callers reach the ports before the start is over, so it can die of anything."""
    repository = slow_repository(tmp_path)
    model, marks = repository / "slow" / "1" / "model.py", tmp_path / "deaths"
    marks.touch()
    dies = f"""
        import os
        with open({str(marks)!r}, "a+") as marks:
            if marks.tell() < {deaths}:
                marks.write("x")
                marks.flush()
                os._exit(1)
"""
    head = "    def execute(self, requests):\n"
    assert head in model.read_text()
    model.write_text(model.read_text().replace(head, head + dies))
    if deaths == 1:
        with launch(repository, drain=False) as server:
            assert server.models == ("slow",)
    else:
        with pytest.raises(ToolError, match="refused a canary request"):
            launch(repository, drain=False)
    assert marks.read_text() == "x" * deaths
    assert traces() <= already_there


def test_a_start_that_hangs_ends_at_its_deadline(tmp_path: Path, already_there: set[int | str]) -> None:
    repository = slow_repository(tmp_path)
    model = repository / "slow" / "1" / "model.py"
    model.write_text(model.read_text() + "\n    def initialize(self, args):\n        time.sleep(600)\n")
    with pytest.raises(ToolError, match="not ready within 2 s"):
        launch(repository, deadline_s=2)
    assert traces() <= already_there


def test_an_empty_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trimaran deploy"):
        launch(tmp_path)


def test_what_a_killed_layout_left_does_not_stop_the_server(repository: Path) -> None:
    (repository / ".making-99999999-abc").mkdir()
    with launch(repository):
        assert not (repository / ".making-99999999-abc").exists()


def test_closing_answers_the_request_in_flight(tmp_path: Path, already_there: set[int | str]) -> None:
    answers: list[object] = []

    def ask(url: str) -> None:
        with Client(url) as client:
            try:
                answers.append(client.embed("slow", ["1.5"]).tolist())
            except TrimaranError as error:
                answers.append(error)

    repository = slow_repository(tmp_path)
    with launch(repository) as server:
        asking = threading.Thread(target=ask, args=(server.grpc_url,))
        asking.start()
        assert eventually((repository / "slow" / "1" / "asleep").exists)
    asking.join()
    assert answers == [[[3.0]]]
    assert traces() <= already_there


def test_a_full_queue_and_a_late_answer_are_told_apart(tmp_path: Path) -> None:
    with launch(slow_repository(tmp_path)) as server:
        outcomes: list[object] = []

        def ask() -> None:
            with Client(server.grpc_url) as client:
                try:
                    outcomes.append(client.embed("slow", ["1"]).shape)
                except TrimaranError as error:
                    outcomes.append(type(error))

        asking = [threading.Thread(target=ask) for _ in range(8)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert set(outcomes) == {(1, 1), Overloaded}
        for protocol, url in (("grpc", server.grpc_url), ("http", server.http_url)):
            with Client(url, protocol=protocol, timeout_s=0.3) as client:  # type: ignore[arg-type]
                with pytest.raises(TimedOut, match=r"within 0\.3 s"):
                    client.embed("slow", ["1"])


LAUNCH = """
import sys, time
from pathlib import Path
from trimaran.serving.triton.server import launch
server = launch(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_parent_leaves_nothing(repository: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCH, str(repository)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout and parent.stdout.readline() == b"ready\n"
        assert shared_memory_with(f"trimaran-{parent.pid}-")
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert eventually(lambda: not traces(parent.pid))


def test_a_server_that_need_not_drain_leaves_nothing_either(repository: Path, already_there: set[int | str]) -> None:
    with launch(repository, drain=False) as server:
        assert shared_memory_with(f"trimaran-{os.getpid()}-")
    assert not server.alive()
    assert traces() <= already_there


def test_a_killed_keeper_takes_the_server_along(
    repository: Path, already_there: set[int | str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    word = f"trimaran-{os.getpid()}-"
    with launch(repository) as server:
        pids = set(processes_with(word)) - already_there
        keeper = [pid for pid in pids if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(keeper) == 1
        os.kill(keeper[0], signal.SIGKILL)
        assert eventually(lambda: not server.alive())
        assert eventually(lambda: traces() <= already_there)
