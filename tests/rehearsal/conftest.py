"""A rehearsal: the product's own code on a GPU that is made of host memory. No figure from it means anything.

The driver is compiled from `driver.c` and handed over by an explicit path. `stand_in/tensorrt` has TensorRT's surface
and computes with ONNX Runtime. Both are visible only to an environment of their own, whose Python runs the commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.prepared import TASKS, prepare_by_hand
from trimaran.serving.triton import installation

# Exporting needs these two; a machine that finishes or serves has neither.
_WITHOUT_TORCH = """import os, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "sentence_transformers", "optimum", "onnxscript"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
if os.environ.get("REHEARSAL_WITHOUT_TORCH"):
    sys.meta_path.insert(0, Absent())
"""
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Rehearsal:
    """An environment with the stand-ins, and a prepared repository in it."""

    python: Path
    driver: Path
    home: Path
    repository: Path
    # Beside those of the caller.
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, **variables: str) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        own = {"TRIMARAN_HOME": str(self.home), "TRIMARAN_CUDA_DRIVER": str(self.driver), "COLUMNS": "120"}
        return inherited | own | {"TRIMARAN_BUSY_OK": "1"} | dict(self.variables) | variables

    def run(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), "-m", "trimaran", *map(str, arguments)],
            env=self.environment(**variables),
            cwd=self.home.parent,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def said(self, *arguments: object, **variables: str) -> Any:
        done = self.run(*arguments, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextlib.contextmanager
    def served(self, **variables: str) -> Iterator[str]:
        """The repository on the real Triton; the address of its gRPC port."""
        server = self.said("serve", self.repository, "--free-ports", "--detach", **variables)
        try:
            yield f"127.0.0.1:{server['grpc_port']}"
        finally:
            self.run("stop", self.repository)

    def copy(self, folder: Path) -> Rehearsal:
        """The same with a repository and a store of its own."""
        shutil.copytree(self.repository, folder / "repository")
        return replace(self, home=folder / "home", repository=folder / "repository")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A machine with two GPUs that are made of host memory. Its repository is empty."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the stand-in of the driver")
    pytest.importorskip("tensorrt_rtx")
    root = tmp_path_factory.mktemp("rehearsal")
    driver = root / "libcuda-rehearsal.so"
    subprocess.run(["cc", "-Wall", "-shared", "-fPIC", "-O1", "-o", str(driver), str(HERE / "driver.c")], check=True)
    return Rehearsal(_environment(root / "env"), driver, root / "home", root / "repository")


@pytest.fixture(scope="session")
def rehearsal(machine: Rehearsal, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """An embedding model and a classifier in one repository, prepared as on a laptop."""
    root = tmp_path_factory.mktemp("prepared")
    for name in TASKS:
        prepare_by_hand(root, root / "repository", name)
    return Rehearsal(machine.python, machine.driver, root / "home", root / "repository")


# The stage that stands in for Triton's tensorrt backend, where Python itself has no stand-in of TensorRT.
_STAGE = f"""import sys
from pathlib import Path
sys.path[:0] = [{str(HERE / "stand_in")!r}, str(Path(__file__).parent)]
from stage import TritonPythonModel
"""


@pytest.fixture(scope="session")
def image(rehearsal: Rehearsal, triton: None, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A machine like NVIDIA's image: `trtexec`, and a Triton with a tensorrt backend; Python has no TensorRT."""
    root = tmp_path_factory.mktemp("image")
    python = _environment(root / "env", with_tensorrt=False)
    found = installation.find()
    found.place_backends(root / "triton" / "backends")
    backend = root / "triton" / "backends" / "tensorrt"
    (backend / "model.py").rename(backend / "stage.py")
    (backend / "model.py").write_text(_STAGE, encoding="utf-8")
    for link, target in {"bin/tritonserver": found.binary, "caches": found.caches, "lib": found.libraries[0]}.items():
        (root / "triton" / link).parent.mkdir(exist_ok=True)
        (root / "triton" / link).symlink_to(target)
    (root / "bin").mkdir()
    (root / "bin" / "trtexec").write_text(f'#!/bin/sh\nexec {python} {HERE / "stand_in" / "trtexec.py"} "$@"\n')
    (root / "bin" / "trtexec").chmod(0o755)
    variables = {
        "TRIMARAN_TRITON": str(root / "triton"),
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
    }
    return replace(rehearsal, python=python, home=root / "home", variables=variables)


def _environment(folder: Path, *, with_tensorrt: bool = True) -> Path:
    """An environment with this one's packages, the package under test, and the stand-in as installed `tensorrt`."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    if with_tensorrt:
        shutil.copytree(HERE / "stand_in" / "tensorrt", packages / "tensorrt")
        facts = packages / "tensorrt-11.2.1.5.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorrt\nVersion: 11.2.1.5\n", encoding="utf-8")
    here = [path for path in site.getsitepackages() if Path(path).is_dir()]
    lines = [str(ROOT), *(f"import site; site.addsitedir({path!r})" for path in here)]
    (packages / "sitecustomize.py").write_text(_WITHOUT_TORCH, encoding="utf-8")
    (packages / "rehearsal.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "bin" / Path(sys.executable).name
