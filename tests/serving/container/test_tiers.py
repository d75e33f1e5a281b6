"""Two tiers: gateways and Tritons that grow apart, where a release rolls and being busy is not being dead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import trimaran_here
from tests.tiny import tiny_artifact
from trimaran.core.choices import CPU_IMAGE, GPU_IMAGE
from trimaran.model_repository.layout import lay_out
from trimaran.model_repository.versions import pin
from trimaran.serving.container.image import NVIDIA_ENTRYPOINT

IMAGE = f"registry.example/models/m@sha256:{'0' * 64}"
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiers")
    for task in ("embedding", "embedding"):
        lay_out(tiny_artifact(folder / "s", task=task), repository=folder / "r", name="m", rows="alone", threads=2)
    return folder / "r"


def rendered(repository: Path, *options: object) -> Objects:
    done = trimaran_here(
        "kubernetes", "m", "--repository", repository, "--two-tiers", *options, home=repository.parent / "h"
    )
    assert done.returncode == 0, done.stderr
    return {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(done.stdout)}


def pods(found: Objects) -> dict[str, dict[str, Any]]:
    deployments = [item for (kind, _), item in found.items() if kind == "Deployment"]
    return {item["metadata"]["name"]: item["spec"]["template"] for item in deployments}


@pytest.mark.parametrize("options", [(), ("--model-image", IMAGE), ("--model-image", IMAGE, "--by-init")], ids=len)
def test_every_object_keeps_the_published_schemas(repository: Path, options: tuple[str, ...]) -> None:
    from kubernetes_validate import utils

    found = rendered(repository, *options)
    assert len(found) == 11
    for item in found.values():
        utils.validate(item, utils.latest_version(), strict=True)


def test_the_release_is_in_both_pod_templates_and_changes_with_the_version(repository: Path) -> None:
    def releases() -> set[str]:
        return {pod["metadata"]["annotations"]["trimaran.io/release"] for pod in pods(rendered(repository)).values()}

    (first,) = releases()
    pin(repository, "m", 2)
    (second,) = releases()
    pin(repository, "m", 1)
    assert first.startswith("1:") and second.startswith("2:") and len(first) == len("1:") + 16


def test_gateways_find_every_triton_by_the_headless_service(repository: Path) -> None:
    found = rendered(repository, "--namespace", "models")
    service = found["Service", "trimaran-m-tritons"]["spec"]
    assert service["clusterIP"] == "None"
    tritons, gateways = pods(found)["trimaran-m-tritons"], pods(found)["trimaran-m"]
    assert service["selector"].items() <= tritons["metadata"]["labels"].items()
    assert not service["selector"].items() <= gateways["metadata"]["labels"].items()
    (gateway,), (triton,) = gateways["spec"]["containers"], tritons["spec"]["containers"]
    assert "--url=trimaran-m-tritons.models.svc:8001" in gateway["args"]
    assert triton["image"] == CPU_IMAGE and triton["args"][:2] == ["serve", "/models"]
    policy = found["NetworkPolicy", "trimaran-m-tritons"]["spec"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "trimaran-m"}}}]
    assert policy["egress"] == []


def test_a_busy_pod_is_never_taken_for_dead(repository: Path) -> None:
    for pod in pods(rendered(repository)).values():
        (container,) = pod["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] in ("/v2/health/live", "/healthz")
        assert container["startupProbe"]["failureThreshold"] >= 30
        assert container["lifecycle"]["preStop"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_each_tier_grows_by_its_own_measure(repository: Path) -> None:
    found = rendered(repository, "--pending", 5, "--texts-in-flight", 32)
    (cpu,) = found["HorizontalPodAutoscaler", "trimaran-m"]["spec"]["metrics"]
    queue, texts = found["HorizontalPodAutoscaler", "trimaran-m-tritons"]["spec"]["metrics"]
    assert cpu["resource"]["name"] == "cpu"
    assert (queue["pods"]["metric"]["name"], queue["pods"]["target"]["averageValue"]) == (
        "nv_inference_pending_request_count", "5",
    )  # fmt: skip
    assert texts["external"]["metric"]["name"] == "trimaran_gateway_texts_in_flight"
    # Gateways of other models have the same metric. This is the label of our gateways' pods, as Prometheus writes it.
    (gateways,) = texts["external"]["metric"]["selector"]["matchLabels"].items()
    labels = pods(found)["trimaran-m"]["metadata"]["labels"]
    assert gateways == ("app_kubernetes_io_name", labels["app.kubernetes.io/name"])


def test_a_model_image_is_mounted_or_pulled_and_read_where_it_is(repository: Path) -> None:
    mounted = pods(rendered(repository, "--model-image", IMAGE))["trimaran-m-tritons"]["spec"]
    assert {"name": "models", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}} in mounted["volumes"]
    assert mounted["containers"][0]["args"][1] == "/image/models"
    pulled = pods(rendered(repository, "--model-image", IMAGE, "--by-init"))["trimaran-m-tritons"]["spec"]
    (init,) = pulled["initContainers"]
    assert init["args"] == ["pull", IMAGE, "--repository=/models"]
    assert pulled["containers"][0]["args"][1] == "/models"
    assert "persistentVolumeClaim" not in json.dumps(mounted) + json.dumps(pulled)


@pytest.mark.parametrize("options", [(), ("--model-image", IMAGE), ("--model-image", IMAGE, "--by-init")], ids=len)
def test_a_prepared_model_is_finished_on_a_gpu_and_served_beside_the_gateways(
    repository: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    import shutil

    from kubernetes_validate import utils

    shutil.copytree(repository, tmp_path / "r")
    (tmp_path / "r" / "m" / "1" / "prepared.json").write_text("{}")
    found = rendered(tmp_path / "r", *options)
    for item in found.values():
        utils.validate(item, utils.latest_version(), strict=True)
    tritons, gateways = pods(found)["trimaran-m-tritons"]["spec"], pods(found)["trimaran-m"]["spec"]
    *_, finish = tritons["initContainers"]
    (triton,) = tritons["containers"]
    folder = "/image/models" if options == ("--model-image", IMAGE) else "/models"
    assert finish["args"] == ["finish", folder, "m", "--into=/plans/models"]
    assert triton["image"] == finish["image"] == GPU_IMAGE
    assert triton["command"] == [NVIDIA_ENTRYPOINT, "trimaran"] and triton["args"][:2] == ["serve", "/plans/models"]
    for container in (triton, finish):
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert {"name": "plans", "mountPath": "/plans"} in container["volumeMounts"]
    (models,) = (mount for mount in finish["volumeMounts"] if mount["name"] == "models")
    assert folder.startswith(models["mountPath"])
    assert {"name": "plans", "persistentVolumeClaim": {"claimName": "plans"}} in tritons["volumes"]
    assert triton["startupProbe"]["failureThreshold"] * triton["startupProbe"]["periodSeconds"] == 1800
    assert "nvidia.com/gpu" not in json.dumps(gateways) and "plans" not in json.dumps(gateways)
