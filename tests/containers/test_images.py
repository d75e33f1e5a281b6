"""The images of deploy/, run by podman as a cluster would run them. `make containers` builds them and runs this."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openai
import pytest

from tests.containers.conftest import pods
from tests.serving.gateway.worlds import collecting
from tests.serving.worlds import TEXTS, by_hand, eventually
from trimaran.core.errors import TrimaranError
from trimaran.serving.client import Client
from trimaran.serving.container.kubernetes import QUEUE_METRIC
from trimaran.serving.container.kubernetes_tiers import TEXTS_METRIC

pytestmark = [pytest.mark.container, pytest.mark.slow]
TEXT = list(TEXTS[:3])


def answers(client: Client) -> bool:
    try:
        return bool(np.allclose(client.embed("m", TEXT), by_hand(TEXT), atol=1e-5))
    except TrimaranError:
        return False


def test_a_locked_down_container_serves_what_was_proven_and_recovers(network: pods.Bridge, repository: Path) -> None:
    address = network.run("one", pods.CPU_IMAGE, repository)
    with Client(f"{address}:8001", timeout_s=20) as client:
        assert eventually(lambda: answers(client), within_s=90), network.log("one")
        status = network.execute("one", "cat", "/proc/1/status").stdout
        assert "Uid:\t1000" in status and "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
        assert network.execute("one", "sh", "-c", "touch /x", check=False).returncode
        (scratch,) = (
            line for line in network.execute("one", "cat", "/proc/mounts").stdout.splitlines() if " /tmp " in line
        )
        assert "noexec" in scratch
        assert "Started GRPCInferenceService" in network.log("one"), "Triton's log is the container's"
        verified = network.execute("one", "trimaran", "verify", "127.0.0.1:8001", "m", "--repository", "/models")
        assert verified.returncode == 0, verified.stderr
        network.kill_stubs("one")
        assert eventually(lambda: answers(client), within_s=60), "dead stubs are replaced"
        assert eventually(lambda: pods.served_in(network.full("one"))["reloads"] >= 1)
        assert pods.served_in(network.full("one"))["models"][0]["digest"]
    pods.podman("stop", "-t", "30", network.full("one"))
    assert network.facts("one")["State"]["ExitCode"] == 0


@pytest.mark.parametrize("image", [pods.CPU_IMAGE, pods.GATEWAY_IMAGE])
def test_an_image_has_less_than_800_mb_and_says_how_its_health_is_asked(images: None, image: str) -> None:
    (facts,) = json.loads(pods.podman("image", "inspect", image).stdout)
    assert facts["Size"] < 800e6
    assert facts["Healthcheck"]["Test"][0] == "CMD" and facts["User"] == "1000:1000"


def test_the_containers_are_healthy_have_the_metrics_of_the_manifests_and_send_traces(
    network: pods.Bridge, repository: Path
) -> None:
    address = network.run("triton", pods.CPU_IMAGE, repository, alias="tritons")
    with collecting(network.host) as (collector, traces):
        gateway = network.gateway(repository, "tritons:8001", f"--otlp={collector}")
        assert eventually(lambda: pods.ask(f"{gateway}/readyz")[0] == 200, within_s=90), network.log("gateway")
        for name in ("triton", "gateway"):
            health = pods.podman("healthcheck", "run", network.full(name), check=False)
            assert health.returncode == 0, health.stdout + health.stderr
        # By these names the autoscalers ask; a name that nobody has would never add a pod.
        assert metric_names(f"http://{address}:8002/metrics") >= {QUEUE_METRIC}
        assert metric_names(f"{gateway}/metrics") >= {TEXTS_METRIC}
        assert pods.ask(f"{gateway}/v1/embeddings", {"model": "m", "input": "the cat"})[0] == 200
        assert eventually(lambda: any(b"trimaran-gateway" in sent for sent in traces), within_s=30)
        pods.podman("stop", "-t", "30", network.full("triton"))
        assert eventually(
            lambda: pods.podman("healthcheck", "run", network.full("gateway"), check=False).returncode == 1
        )


def metric_names(url: str) -> set[str]:
    lines = pods.ask(url)[1].decode().splitlines()
    return {line.partition("{")[0].partition(" ")[0] for line in lines if not line.startswith("#")}


def test_a_damaged_model_is_not_served(network: pods.Bridge, repository: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(repository, tmp_path / "r")
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    with (tmp_path / "r" / "m" / "1" / "model.onnx").open("ab") as graph:
        graph.write(b"\0")
    network.run("one", pods.CPU_IMAGE, tmp_path / "r")
    assert eventually(lambda: network.facts("one")["State"]["Status"] == "exited", within_s=90)
    assert network.facts("one")["State"]["ExitCode"] != 0 and "model.onnx" in network.log("one")


def test_openais_client_sees_no_failure_while_replicas_die_stop_and_return(
    network: pods.Bridge, repository: Path
) -> None:
    """`benchmarks/replicas.py` is the long version."""
    for number in range(3):
        network.run(f"triton-{number}", pods.CPU_IMAGE, repository, alias="tritons")
    gateway = network.gateway(repository, "tritons:8001")
    assert eventually(lambda: pods.ready(gateway) == 3, within_s=120), network.log("gateway")
    client = openai.OpenAI(base_url=f"{gateway}/v1", api_key="none", max_retries=0)
    outcomes: Counter[str] = Counter()
    over = threading.Event()
    expected = by_hand(["the cat"])[0]

    def go_on() -> None:
        while not over.is_set():
            try:
                vector = client.embeddings.create(model="m", input="the cat").data[0].embedding
                outcomes["right" if np.allclose(vector, expected, atol=1e-5) else "wrong"] += 1
            except openai.OpenAIError as error:
                outcomes[repr(error)] += 1

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(go_on) for _ in range(4)]
        try:
            assert eventually(lambda: outcomes["right"] > 100, within_s=60)
            pods.podman("kill", network.full("triton-0"))
            time.sleep(3)
            pods.podman("stop", "-t", "30", network.full("triton-1"))
            time.sleep(3)
            pods.podman("start", network.full("triton-0"))
            assert eventually(lambda: pods.ready(gateway) >= 2, within_s=90), "one that returns is found by its name"
            assert pods.ask(f"{gateway}/readyz")[0] == 200
        finally:
            over.set()
        for caller in callers:
            caller.result()
    assert set(outcomes) == {"right"}, outcomes
