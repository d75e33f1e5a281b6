"""Libraries that report their use to their makers are silent in every process of ours.

They look a host up and write an id into the home folder. The host of a look-up is asked over a socket, which `strace`
sees also in native code.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.export import zoo
from tests.model_repository.worlds import ir_artifact
from tests.serving.worlds import eventually
from tests.texts import judging_pairs
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

pytestmark = [
    pytest.mark.usefixtures("triton"),
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
# Connections that leave the machine, name servers at its own addresses included.
_OUTSIDE = re.compile(r"sin6?_port=htons\(53\)|sin_addr=inet_addr\(\"(?!127\.0\.0\.)|sun_path=\"/run/systemd/resolve")


@pytest.fixture
def world(tmp_path: Path) -> Path:
    for name, artifact in (("vectors", tiny_artifact(tmp_path / "s")), ("classes", ir_artifact(tmp_path / "s"))):
        lay_out(artifact, repository=tmp_path / "r", name=name, rows="padded", threads=1)
    (tmp_path / "home").mkdir()
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog ran\n")
    return tmp_path


def started(world: Path, *arguments: object) -> subprocess.Popen[str]:
    """The command under strace, with an empty home folder of its own."""
    tracing = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect", "-o", str(world / "trace")]
    variables = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    return subprocess.Popen(
        [*tracing, sys.executable, "-m", "trimaran", *map(str, arguments)],
        env={**variables, "HOME": str(world / "home"), "TRIMARAN_HOME": str(world / "trimaran")},
        cwd=Path(__file__).parents[2],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def assert_silent(world: Path) -> None:
    trace = (world / "trace").read_text()
    assert not [line for line in trace.splitlines() if _OUTSIDE.search(line)]
    assert sorted(path.name for path in (world / "home").rglob("*") if path.is_file()) == []


def test_a_server_and_its_stubs_report_nothing(world: Path) -> None:
    with started(world, "serve", world / "r", "--free-ports", "--json") as process:
        assert process.stdout is not None
        assert "classes" in process.stdout.readline()
        pids = [int(path.stem) for path in (world / "trimaran" / "servers").glob("*.json")]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        assert eventually(lambda: process.poll() is not None)
    assert_silent(world)


def test_an_encoding_run_reports_nothing(world: Path) -> None:
    options = ("--input", world / "texts.txt", "-o", world / "out", "--repository", world / "r")
    with started(world, "encode", "vectors", *options) as process:
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert_silent(world)


def test_a_gateway_reports_nothing(world: Path) -> None:
    options = ("--no-auth", "--port", 0, "--json", "--url", "127.0.0.1:1", "--repository", world / "r")
    with started(world, "gateway", *options) as process:
        assert process.stdout is not None and "port" in process.stdout.readline()
        for child in psutil.Process(process.pid).children():
            child.terminate()
        assert eventually(lambda: process.poll() is not None)
    assert_silent(world)


def test_a_deployment_reports_nothing(world: Path) -> None:
    """With a candidate of each library that reports: ONNX Runtime, OpenVINO and NNCF."""
    model = zoo.saved_model(world / "model", "bert", "embedding")
    candidates = (
        "--candidates",
        "onnxruntime-fused,openvino-int8-weights",
        "--judging",
        judging_pairs(world / "j.jsonl"),
    )
    shapes = ("--sequence", 1, 16, 32, "--batch", 1, 2, 4)
    folders = ("-o", world / "deployed", "--report", world / "report")
    with started(world, "deploy", "-m", model, "--quick", *candidates, *shapes, *folders) as process:
        _, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors
    assert_silent(world)
