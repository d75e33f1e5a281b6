"""What `trimaran kubernetes` prints, by `podman play kube`. `make containers` runs this.

The objects are played as they are printed. Podman 4.3 itself lacks, and the test stands in for:
- volume claims: a volume of the claim's name is made before, over the repository;
- emptyDir that a user other than root may write to: volumes of those names are made before, as tmpfs of user 1000;
- Secrets: it hands out their values as base64, so the secret is made by `podman secret create`;
- Services: the name of the headless Service is an alias of the Tritons' pod.
Replicas beyond one, autoscalers, budgets, policies and probes are not run by podman.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
import yaml

from tests.commands import trimaran
from tests.containers.conftest import pods
from tests.serving.worlds import by_hand, eventually
from trimaran.serving.gateway.keys import add_key

pytestmark = [pytest.mark.container, pytest.mark.slow]
# Podman publishes every containerPort on this machine.
PORTS = (8000, 8001, 8002, 8080)
NAME, CLAIM = "trimaran-m", "trimaran-test-models"
MEMORY = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=uid=1000,gid=1000,mode=1777")


@pytest.fixture
def key(network: pods.Bridge, repository: Path, tmp_path: Path) -> Iterator[str]:
    """A key, when everything that podman lacks is there."""
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                pytest.skip(f"Port {port} is taken, and podman publishes it.")
    for volume in ("scratch", "shared-memory"):
        if not pods.podman("volume", "exists", volume, check=False).returncode:
            pytest.skip(f"There is a volume {volume} already.")
    made = add_key(tmp_path / "keys.json", "tests")
    secret = tmp_path / "secret.yaml"
    secret.write_text(yaml.safe_dump({"data": {"keys.json": (tmp_path / "keys.json").read_text()}}))
    try:
        for volume in ("scratch", "shared-memory"):
            pods.podman("volume", "create", *MEMORY, volume)
        pods.podman("volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", f"device={repository}", CLAIM)
        pods.podman("secret", "create", f"{NAME}-keys", secret)
        yield made
    finally:
        # Podman keeps a secret that was mounted as a volume.
        for volume in ("scratch", "shared-memory", CLAIM, f"{NAME}-keys"):
            pods.podman("volume", "rm", "-f", volume, check=False)
        pods.podman("secret", "rm", f"{NAME}-keys", check=False)


def printed(repository: Path, folder: Path, *options: str) -> list[dict[str, object]]:
    images = ("--image", f"{pods.CPU_IMAGE}:latest", "--gateway-image", f"{pods.GATEWAY_IMAGE}:latest")
    given = ("--repository", repository, "--claim", CLAIM, "--replicas", "1", *images)
    done = trimaran("kubernetes", "m", *given, *options, home=folder / "home")
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def answers(key: str) -> bool:
    client = openai.OpenAI(base_url="http://127.0.0.1:8080/v1", api_key=key, max_retries=0)
    try:
        vector = client.embeddings.create(model="m", input="the cat").data[0].embedding
    except openai.OpenAIError:
        return False
    return bool(np.allclose(vector, by_hand(["the cat"])[0], atol=1e-5))


def container(name: str) -> str:
    """Podman has named pods differently, such as trimaran-m-pod-0."""
    (found,) = pods.podman("ps", "-a", "--filter", f"name=^{NAME}-.*{name}$", "--format", "{{.Names}}").stdout.split()
    return str(found)


def log_of(name: str) -> str:
    logs = pods.podman("logs", container(name), check=False)
    return str(logs.stdout + logs.stderr)[-4000:]


def test_one_pod_answers_and_recovers_from_dead_stubs(
    network: pods.Bridge, repository: Path, key: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.safe_dump_all(printed(repository, tmp_path)))
    try:
        pods.podman("play", "kube", "--network", network.name, manifest)
        assert eventually(lambda: answers(key), within_s=120), log_of("triton") + log_of("gateway")
        triton = container("triton")
        pods.podman("exec", triton, "sh", "-c", pods.KILL_STUBS)
        assert eventually(lambda: answers(key), within_s=60), "the watchdog is in the pod"
        assert eventually(lambda: pods.served_in(triton)["reloads"] >= 1)
    finally:
        pods.podman("play", "kube", "--down", manifest, check=False)


def test_gateways_of_the_second_tier_find_the_tritons(
    network: pods.Bridge, repository: Path, key: str, tmp_path: Path
) -> None:
    tiers: dict[str, list[object]] = {"tritons": [], "gateways": []}
    for item in printed(repository, tmp_path, "--two-tiers", "--gateways", "1"):
        metadata = item["metadata"]
        assert isinstance(metadata, dict)
        tiers["tritons" if str(metadata["name"]).endswith("-tritons") else "gateways"].append(item)
    networks = {"tritons": f"{network.name}:alias={NAME}-tritons.default.svc", "gateways": network.name}
    manifests = {tier: tmp_path / f"{tier}.yaml" for tier in tiers}
    try:
        for tier, items in tiers.items():
            manifests[tier].write_text(yaml.safe_dump_all(items))
            pods.podman("play", "kube", "--network", networks[tier], manifests[tier])
        assert eventually(lambda: answers(key), within_s=120), log_of("triton") + log_of("gateway")
    finally:
        for manifest in manifests.values():
            pods.podman("play", "kube", "--down", manifest, check=False)
