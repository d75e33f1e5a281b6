"""Small doors: folders of other containers, folders of killed servers, numbers that cannot be, and root."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny import tiny_artifact
from trimaran.core import scratch
from trimaran.core.store import locked, sweep
from trimaran.model_repository.check import problems
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline import package
from trimaran.serving.container.image import docker_command, served_models
from trimaran.serving.triton import keeper, server

NOBODY = 4_190_000
DEPLOY = Path(__file__).parents[2] / "deploy"


def test_what_a_process_of_another_container_makes_is_not_swept(tmp_path: Path) -> None:
    """Its process number does not exist here, but its lock does."""
    theirs, left = tmp_path / f".making-{NOBODY}-theirs", tmp_path / f".making-{NOBODY}-left"
    left.mkdir()
    with locked(theirs):
        sweep(tmp_path)
        assert theirs.exists() and not left.exists()
    sweep(tmp_path)
    assert not theirs.exists()


def test_folders_of_killed_servers_are_removed_and_those_of_living_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, living, older = (tmp_path / f"trimaran-triton-{name}" for name in ("killed", "living", "older"))
    killed.mkdir()
    older.mkdir()
    # The folder is in the command line of a server that an older trimaran started, which locks nothing.
    with locked(living), subprocess.Popen([sys.executable, "-c", "input()", older], stdin=subprocess.PIPE) as process:
        server._remove_left_over()
        assert (killed.exists(), living.exists(), older.exists()) == (False, True, True)
        process.communicate(b"\n")


def test_a_pull_works_in_a_folder_that_the_next_one_removes_if_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder had a name of its own, which nobody swept: a killed pull left a whole model behind."""
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    options: dict[str, Any] = {"tag": "example.com/m:1", "sign": None, "to_registry": False}
    image = package.package(tmp_path / "r", "m", 1, layout=tmp_path / "image", **options).layout
    seen: list[str] = []
    unpack = package.unpack

    def unpack_seen(image: Any, folder: Path) -> None:
        seen.extend(path.name for path in (tmp_path / "there").iterdir())
        unpack(image, folder)

    monkeypatch.setattr(package, "unpack", unpack_seen)
    (tmp_path / "there" / f".making-{NOBODY}-killed").mkdir(parents=True)
    package.pull(str(image), tmp_path / "there", trust_key=None)
    assert len(seen) == 1 and seen[0].startswith(f".making-{os.getpid()}-")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"m", "m_onnxruntime"}


OWNER = """
from trimaran.core.isolation import Worker
from trimaran.core.scratch import ScratchFolder
folder, worker = ScratchFolder("probe"), Worker()
print(folder.name, worker.log, flush=True)
input()
"""


def test_what_a_killed_process_leaves_is_removed_at_the_next_start_and_a_living_ones_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder, log = map(Path, owner.stdout.readline().split())
        day_before = time.time() - 2 * 24 * 3600
        os.utime(log, (day_before, day_before))
        scratch.sweep()
        assert folder.is_dir() and log.is_file(), "its owner lives"
        owner.kill()
    theirs = tmp_path / f"trimaran-probe-{NOBODY}-theirs"
    with locked(theirs):
        scratch.sweep()
        assert theirs.exists() and not folder.exists()
    # The child of the killed process holds the log until it has noticed.
    end_s = time.monotonic() + 30
    while log.exists() and time.monotonic() < end_s:
        time.sleep(0.05)
        scratch.sweep()
    assert not log.exists()
    with scratch.ScratchFolder("probe") as own:
        scratch.sweep()
        assert Path(own).is_dir()
    scratch.sweep()
    assert not list(tmp_path.iterdir())


def test_the_folder_that_a_killed_triton_leaves_is_removed_and_no_other(tmp_path: Path) -> None:
    began_s = 1_000_000.0
    ages_s = {"python_env_ours": 1, "python_env_older": -1, "python_env_later": 999, "python_env_used": 1, "other": 1}
    for name in ages_s:
        (tmp_path / name).mkdir()
    (tmp_path / "python_env_used" / "file").touch()
    for name, age_s in ages_s.items():
        os.utime(tmp_path / name, (began_s + age_s, began_s + age_s))
    keeper.remove_environments(began_s, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == ages_s.keys() - {"python_env_ours"}


@pytest.mark.parametrize("number", [-1, 0, 10**30, float("inf")])
@pytest.mark.parametrize("name", ["serving.json", "manifest.json"])
def test_numbers_that_cannot_be_are_findings(tmp_path: Path, name: str, number: float) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    path = tmp_path / "r" / "m" / "1" / name
    facts = json.loads(path.read_text())
    facts["profile"]["batch"]["minimum"] = number
    path.write_text(json.dumps(facts))
    assert path in {problem.place for problem in problems(tmp_path / "r")}


@pytest.mark.parametrize(
    ("image", "requirements"),
    [
        ("Dockerfile", "requirements-triton.txt"),
        ("cpu.Dockerfile", "requirements-cpu.txt"),
        ("gateway.Dockerfile", "requirements-gateway.txt"),
        ("gpu.Dockerfile", "requirements-finish.txt"),
    ],
)
def test_an_image_takes_only_files_with_the_hashes_that_were_written_down(image: str, requirements: str) -> None:
    """But TensorRT's libraries, which NVIDIA's installer fetches: the version alone is written down."""
    lines = (DEPLOY / image).read_text().splitlines()
    installs = [line for line in lines if "pip install" in line and '"${TENSORRT}"' not in line]
    assert installs and all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert requirements in installs[0]
    # With backslashes at their ends, the lines of one package are one.
    lines = (DEPLOY / requirements).read_text().replace("\\\n", " ").splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert packages
    for requirement in packages:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", requirement), requirement


def test_every_service_of_the_compose_file_has_a_limit_of_cpus() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert {name: "cpus" in service for name, service in services.items()} == {"triton": True, "gateway": True}


def test_a_container_never_runs_as_root_and_has_a_limit_of_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "r", name="m", rows="padded", threads=1)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    ports = {"http": 1, "grpc": 2, "metrics": 3}
    command = docker_command(tmp_path / "r", served_models(tmp_path / "r"), ports=ports, image="i", gpu=False)
    assert command[command.index("--user") + 1] == "1000:1000"
    assert command[command.index("--cpus") + 1] == "1"
