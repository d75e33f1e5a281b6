"""The images of deploy/, run by podman as a cluster would run them. `make containers` builds them and runs this."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.worlds import TEXTS, by_hand, eventually
from tests.tiny import tiny_artifact
from trimaran.core.errors import TrimaranError
from trimaran.model_repository.layout import lay_out
from trimaran.serving.client import Client

pytestmark = [pytest.mark.container, pytest.mark.slow]
CPU_IMAGE, GATEWAY_IMAGE = "localhost/trimaran-cpu", "localhost/trimaran-gateway"
# What docker, compose and the manifests run with; podman's --tmpfs is noexec by default, as docker's is.
LOCKED_DOWN = (
    "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--tmpfs", "/tmp:rw,noexec,mode=1777", "--shm-size", "256m",
)  # fmt: skip
TEXT = list(TEXTS[:3])


def podman(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["podman", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=180)


@pytest.fixture(scope="module")
def images() -> None:
    if shutil.which("podman") is None:
        pytest.skip("There is no podman here.")
    for image in (CPU_IMAGE, GATEWAY_IMAGE):
        if podman("image", "exists", image, check=False).returncode:
            pytest.skip(f"There is no image {image}: `make containers` builds it.")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("containers")
    lay_out(tiny_artifact(folder / "s"), repository=folder / "r", name="m", rows="equal-length", threads=1)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    return folder / "r"


@pytest.fixture
def network(images: None) -> Iterator[str]:
    """A bridge with a name server. Containers of the test are removed with it."""
    name = f"trimaran-{uuid.uuid4().hex[:8]}"
    podman("network", "create", name)
    yield name
    podman("network", "rm", "-f", name)


def run(network: str, name: str, image: str, repository: Path, *arguments: object, alias: str = "") -> str:
    """Starts a container; returns its address."""
    full = f"{network}-{name}"
    place = ("--network", f"{network}:alias={alias}" if alias else network)
    volume = ("--volume", f"{repository}:/models:ro")
    podman("run", "-d", "--replace", "--name", full, *place, *volume, *LOCKED_DOWN, image, *arguments)
    facts: Any = json.loads(podman("inspect", full).stdout)[0]
    return str(facts["NetworkSettings"]["Networks"][network]["IPAddress"])


def answers(client: Client) -> bool:
    try:
        return bool(np.allclose(client.embed("m", TEXT), by_hand(TEXT), atol=1e-5))
    except TrimaranError:
        return False


def test_a_locked_down_container_serves_what_was_proven_and_recovers(network: str, repository: Path) -> None:
    address = run(network, "one", CPU_IMAGE, repository)
    one = f"{network}-one"
    with Client(f"{address}:8001", timeout_s=20) as client:
        assert eventually(lambda: answers(client), within_s=90), podman("logs", one, check=False).stderr
        status = podman("exec", one, "cat", "/proc/1/status").stdout
        assert "Uid:\t1000" in status and "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        assert podman("exec", one, "sh", "-c", "touch /x", check=False).returncode
        logs = podman("logs", one)
        assert "Started GRPCInferenceService" in logs.stdout + logs.stderr, "Triton's log is the container's"
        find = "for p in /proc/[0-9]*; do grep -q '[b]ackend_stub' $p/cmdline && kill -9 ${p#/proc/}; done; true"
        podman("exec", one, "sh", "-c", find)
        assert eventually(lambda: answers(client), within_s=60), "dead stubs are replaced"
    podman("stop", "-t", "30", one)
    assert json.loads(podman("inspect", one).stdout)[0]["State"]["ExitCode"] == 0


def test_a_gateway_finds_replicas_by_name_and_no_call_fails(network: str, repository: Path) -> None:
    import http.client

    for number in range(3):
        run(network, f"triton-{number}", CPU_IMAGE, repository, alias="tritons")
    options = ("gateway", "--repository=/models", "--url=tritons:8001", "--host=0.0.0.0", "--port=8080", "--no-auth")
    gateway = run(network, "gateway", GATEWAY_IMAGE, repository, *options)

    def ask(path: str, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(gateway, 8080, timeout=60)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def ready() -> int:
        text = ask("/metrics")[1].decode()
        return sum(line.endswith(" 1.0") for line in text.splitlines() if "gateway_replica_ready{" in line)

    assert eventually(lambda: ready() == 3, within_s=120), podman("logs", f"{network}-gateway", check=False).stderr
    statuses: Counter[int] = Counter()
    over = False

    def go_on() -> None:
        while not over:
            statuses[ask("/v1/embeddings", {"input": "the cat"})[0]] += 1

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(go_on) for _ in range(4)]
        try:
            assert eventually(lambda: statuses[200] > 100, within_s=60)
            podman("kill", f"{network}-triton-0")
            time.sleep(3)
            podman("stop", "-t", "30", f"{network}-triton-1")
            time.sleep(3)
            run(network, "triton-0", CPU_IMAGE, repository, alias="tritons")
            assert eventually(lambda: ready() >= 2, within_s=90), "one that returns is found by its name"
            assert ask("/readyz")[0] == 200
        finally:
            over = True
        for caller in callers:
            caller.result()
    assert set(statuses) == {200}, statuses
