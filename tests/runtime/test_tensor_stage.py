"""The python-based backend that stands in for the official ones on the local server, without a Triton."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import trimaran.runtime
from trimaran.serving.triton.installation import PYTHON_BASED

RUNTIME = Path(trimaran.runtime.__file__).parent


def opened(folder: Path, backend: str, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The engine that `model.py` opens from a folder with the files that the server places there."""
    place = folder / backend
    place.mkdir()
    shutil.copyfile(RUNTIME / "triton_tensor_model.py", place / "model.py")
    for file in PYTHON_BASED[backend]:
        shutil.copyfile(RUNTIME / file, place / file)
    for name in [name for name in sys.modules if name.startswith("trimaran_backend")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    spec = importlib.util.spec_from_file_location("model", place / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = {"backend": backend, "default_model_filename": "", "input": [], "output": []}
    model = module.TritonPythonModel()
    monkeypatch.setattr(importlib, "import_module", recorded := Recorder(importlib.import_module))
    model.initialize(
        {"model_config": json.dumps(config), "model_repository": str(folder), "model_version": "1", **arguments}
    )
    return recorded


class Recorder:
    """Imports the real module, and keeps how its engine was opened."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __call__(self, name: str, *arguments: Any) -> Any:
        self.module = self._real(name, *arguments)
        return self

    def Engine(self, path: str, *, threads: int, options: dict[str, Any]) -> Any:
        self.path, self.options = path, options
        return self


@pytest.mark.parametrize("backend", PYTHON_BASED)
def test_every_engine_is_imported_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    engine = opened(tmp_path, backend, {}, monkeypatch)
    assert Path(engine.module.__file__).parent == tmp_path / backend
    assert Path(engine.path).parent == tmp_path / "1" and engine.options == {}


def test_a_plan_is_opened_on_the_gpu_that_triton_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = {"model_instance_kind": "GPU", "model_instance_device_id": "1"}
    engine = opened(tmp_path, "tensorrt", on_gpu, monkeypatch)
    assert engine.options == {"device": 1} and engine.path.endswith("model.plan")
