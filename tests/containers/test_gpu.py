"""The GPU image's entry point, the init container and their volumes in real containers: a rehearsal, without a GPU.

The containers have what deploy/gpu.Dockerfile installs at the paths of this machine: the Python of the tests with its
packages, the stand-ins of driver and TensorRT, and a folder like /opt/tritonserver. The image itself is not built here:
its base is NVIDIA's. They run as root without capabilities, because user 1000 may not read the Python of this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import trimaran
from tests.containers.conftest import ROOT, pods
from tests.rehearsal.conftest import Rehearsal, machine, rehearsal  # noqa: F401
from tests.serving.worlds import eventually
from trimaran.serving.container.image import NVIDIA_ENTRYPOINT
from trimaran.serving.triton import installation

pytestmark = [pytest.mark.container, pytest.mark.slow, pytest.mark.timeout(900)]
# The base of deploy/cpu.Dockerfile.
BASE = os.environ.get("TRIMARAN_BASE_IMAGE", "docker.io/library/python:3.12-slim")


@dataclass(frozen=True)
class GpuMachine:
    """A machine with a GPU that is made of host memory, on which containers of the GPU image run."""

    world: Rehearsal
    programs: Path
    volume: str

    def options(self, **variables: str) -> list[object]:
        ours = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "TRIMARAN_CUDA_DRIVER": str(self.world.driver),
            "TRIMARAN_TRITON": str(self.programs / "triton"),
            "TRIMARAN_HOME": "/plans/home",
            "COLUMNS": "200",
        }
        paths = (ROOT, sys.base_prefix, self.world.driver.parent, self.programs)
        mounts = [f"{path}:{path}:ro" for path in paths] + [
            f"{self.world.repository}:/models:ro",
            f"{self.volume}:/plans",
            f"{self.programs / 'entrypoint'}:{NVIDIA_ENTRYPOINT}:ro",
        ]
        return [
            # Only its own loopback: whoever asks is executed inside.
            *("--network", "none"),
            *(part for mount in mounts for part in ("--volume", mount)),
            *(part for item in (ours | variables).items() for part in ("--env", "=".join(item))),
        ]

    def verified(self, name: str) -> bool:
        """Whether the server inside the container answers as eager PyTorch did."""
        asked = ("exec", name, "trimaran", "verify", "127.0.0.1:8001", "tiny", "--repository", "/plans/models")
        if pods.podman(*asked, check=False).returncode == 0:
            return True
        # While plans are built, asking again at once would only take the CPU from them.
        time.sleep(2)
        return False


@pytest.fixture
def gpu_machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GpuMachine]:
    if shutil.which("podman") is None:
        pytest.skip("There is no podman here.")
    if pods.podman("image", "exists", BASE, check=False).returncode:
        pytest.skip(f"There is no image {BASE}.")
    world: Rehearsal = request.getfixturevalue("rehearsal")
    programs = tmp_path / "programs"
    triton = installation.find()
    triton.place_backends(programs / "triton" / "backends")
    (programs / "triton" / "bin").mkdir()
    # The program itself: a script would not get the arguments that the keeper hides from other users.
    (programs / "triton" / "bin" / "tritonserver").symlink_to(triton.binary)
    (programs / "triton" / "caches").symlink_to(triton.caches)
    (programs / "triton" / "lib").symlink_to(triton.libraries[0])
    scripts = {
        "entrypoint": 'exec "$@"',
        "trimaran": f'exec {world.python} -m trimaran "$@"',
        "finish-and-serve": f'exec {ROOT / "deploy" / "finish-and-serve"} "$@"',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    volume = f"gpu-plans-{uuid.uuid4().hex[:8]}"
    pods.podman("volume", "create", volume)
    try:
        yield GpuMachine(world, programs, volume)
    finally:
        pods.podman("volume", "rm", "-f", volume, check=False)


@pytest.fixture
def container() -> Iterator[str]:
    name = f"gpu-{uuid.uuid4().hex[:8]}"
    try:
        yield name
    finally:
        pods.podman("rm", "-f", "-t", "0", name, check=False)


def log_of(name: str) -> str:
    logs = pods.podman("logs", name, check=False)
    return str(logs.stdout + logs.stderr)


def test_the_entry_point_finishes_and_serves_and_the_second_start_only_serves(
    gpu_machine: GpuMachine, container: str
) -> None:
    service = yaml.safe_load((ROOT / "deploy" / "compose.gpu.yaml").read_text())["services"]["triton"]
    command = [
        word.replace("$$", "$").replace("${MODEL:?name the model to serve}", "tiny") for word in service["command"]
    ]
    places = ("--name", container, *gpu_machine.options(MODEL="tiny"), *pods.LOCKED_DOWN)
    pods.podman("run", "-d", *places, BASE, NVIDIA_ENTRYPOINT, "finish-and-serve", *command)
    assert eventually(lambda: gpu_machine.verified(container), within_s=400), log_of(container)
    assert "tiny version 2: " in log_of(container) and "finished before" not in log_of(container)
    assert not (gpu_machine.world.repository / "tiny" / "2").exists(), "/models is read-only"
    pods.podman("restart", "-t", "20", container)
    assert eventually(lambda: gpu_machine.verified(container), within_s=200), log_of(container)
    assert "It was finished before: nothing to do." in log_of(container)


def test_the_init_container_finishes_on_the_volume_that_triton_serves_from(
    gpu_machine: GpuMachine, container: str, tmp_path: Path
) -> None:
    done = trimaran("kubernetes", "tiny", "--repository", gpu_machine.world.repository, home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    (deployment,) = (item for item in yaml.safe_load_all(done.stdout) if item["kind"] == "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    (finish,) = spec["initContainers"]
    triton = next(item for item in spec["containers"] if item["name"] == "triton")
    options = [*gpu_machine.options(), *pods.LOCKED_DOWN]
    told = pods.podman("run", "--rm", *options, BASE, *finish["command"], *finish["args"], check=False, timeout_s=500)
    assert told.returncode == 0 and "tiny version 2: " in told.stdout, told.stderr
    pods.podman("run", "-d", "--name", container, *options, BASE, *triton["command"], *triton["args"])
    assert eventually(lambda: gpu_machine.verified(container), within_s=200), log_of(container)
