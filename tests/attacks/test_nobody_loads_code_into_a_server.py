"""Whoever reaches the ports of a local Triton may infer, and may not make it load a model."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import trimaran, trimaran_json
from tests.homes import home_at
from tests.serving.worlds import processes_with
from tests.tiny import tiny_artifact
from trimaran.core.errors import NotReady
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client
from trimaran.serving.triton import control, daemon
from trimaran.serving.triton.control import Address
from trimaran.serving.triton.processes import descendants

pytestmark = [pytest.mark.usefixtures("triton"), pytest.mark.slow]
CLOSED = (
    "/v2/repository/index",
    "/v2/repository/models/m/load",
    "/v2/repository/models/m/unload",
    "/v2/systemsharedmemory/region/x/register",
    "/v2/cudasharedmemory/region/x/register",
    "/v2/models/m/trace/setting",
    "/v2/trace/setting",
    "/v2/logging",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with home_at(tmp_path_factory.mktemp("home")) as home:
        yield home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[daemon.Running]:
    repository = home.parent / "r"
    lay_out(tiny_artifact(home.parent / "s"), repository=repository, name="m", rows="padded", threads=1)
    yield daemon.serve_detached(repository)
    daemon.stop()


def evil(mark: Path) -> dict[str, object]:
    """A request that brings a model of its own, whose code leaves a mark."""
    code = f"open({str(mark)!r}, 'w')\nclass TritonPythonModel:\n    pass\n"
    config = {"name": "evil", "backend": "python", "input": [], "output": []}
    file = base64.b64encode(code.encode()).decode()
    return {"parameters": {"config": json.dumps(config), "file:1/model.py": file}}


def test_code_is_not_taken_over_http(running: daemon.Running, tmp_path: Path) -> None:
    address = Address("127.0.0.1", running.http_port)
    status, answer = control.call(address, "/v2/repository/models/evil/load", evil(tmp_path / "mark"), timeout_s=10)
    assert status == 403, answer
    assert not (tmp_path / "mark").exists()


def test_code_is_not_taken_from_a_web_page(running: daemon.Running, tmp_path: Path) -> None:
    """A page of another origin may send a POST of this kind without asking the server first."""
    connection = http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=10)
    body, headers = json.dumps(evil(tmp_path / "mark")), {"Content-Type": "text/plain", "Origin": "http://evil.test"}
    connection.request("POST", "/v2/repository/models/evil/load", body, headers)
    assert connection.getresponse().status == 403
    connection.close()
    assert not (tmp_path / "mark").exists()


def test_code_is_not_taken_over_grpc(running: daemon.Running, tmp_path: Path) -> None:
    from tritonclient.grpc import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    client = InferenceServerClient(f"127.0.0.1:{running.grpc_port}")
    files = {"file:1/model.py": f"open({str(tmp_path / 'mark')!r}, 'w')".encode()}
    closed: tuple[Callable[[], object], ...] = (
        lambda: client.load_model("m"),
        lambda: client.load_model("evil", config='{"backend": "python"}', files=files),
        lambda: client.unload_model("m"),
        client.get_model_repository_index,
        client.get_system_shared_memory_status,
        client.get_cuda_shared_memory_status,
        client.get_trace_settings,
        client.get_log_settings,
    )
    for call in closed:
        with pytest.raises(InferenceServerException, match="restricted"):
            call()
    client.close()
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("path", CLOSED)
def test_what_is_not_needed_to_infer_is_closed(running: daemon.Running, path: str) -> None:
    assert control.call(Address("127.0.0.1", running.http_port), path, {}, timeout_s=10)[0] == 403


def test_inference_statistics_and_metrics_stay_open(running: daemon.Running) -> None:
    with Client(f"127.0.0.1:{running.grpc_port}") as client:
        assert client.models() == ("m",)
        assert client.embed("m", ["the cat"]).shape[0] == 1
    connection = http.client.HTTPConnection("127.0.0.1", running.metrics_port, timeout=10)
    connection.request("GET", "/metrics")
    assert b"nv_inference_request_success" in connection.getresponse().read()
    connection.close()


def test_other_users_cannot_read_the_secret(running: daemon.Running, home: Path) -> None:
    secret = running.control.secret
    assert len(secret) == 32
    processes = descendants(running.pid)
    assert any("tritonserver" in process.name() for process in processes)
    assert not processes_with(secret), "every user can read the command line of a process"
    readable = [
        path for path in home.rglob("*") if path.is_file() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]
    assert not [path for path in readable if secret in path.read_text(errors="replace")]
    assert secret not in running.model_dump_json()


def test_the_secret_is_not_sent_to_another_user_who_took_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a server starts again, its port is free. Whoever took it was sent the secret, which stays the same."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(*taken.getsockname(), secret="of the server")

        def listen() -> None:
            for _ in range(2):
                connection, _ = taken.accept()
                with connection:
                    connection.settimeout(1)
                    with contextlib.suppress(TimeoutError):
                        heard.append(connection.recv(4096))

        thread = threading.Thread(target=listen)
        thread.start()
        with pytest.raises(NotReady):
            control.index(address)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(NotReady, match="listened to by another user"):
            control.index(address)
        thread.join()
    assert b"of the server" in heard[0], "it is sent to a server of this user"
    assert heard[1] == b""


def test_a_command_of_ours_loads_a_tensor_model_by_hand(running: daemon.Running, home: Path) -> None:
    options = ("-r", running.repository)
    assert trimaran_json("repository", "load", "m_onnxruntime", *options, home=home)["servers"] == [running.http_port]
    with Client(f"127.0.0.1:{running.grpc_port}") as client:
        assert client.models() == ("m", "m_onnxruntime")
        trimaran_json("repository", "load", "m_onnxruntime", "--unload", *options, home=home)
        assert client.models() == ("m",)
    nowhere = trimaran("repository", "load", "nothing", *options, home=home)
    assert nowhere.returncode == 2 and "has no model 'nothing'" in nowhere.stderr
