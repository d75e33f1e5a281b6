"""The text stage outside Triton: loaded as the stub loads it, with a fake of what the stub provides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.model_repository.worlds import changed
from tests.tiny import tiny_artifact
from trimaran.model_repository.layout import lay_out

FAKE_TRITON = """
class Tensor:
    def __init__(self, name, data): self.name, self.data = name, data
    def as_numpy(self): return self.data

class TritonError:
    INVALID_ARG = 3
    def __init__(self, message, code): self.message, self.code = message, code

class InferenceResponse:
    def __init__(self, output_tensors=(), error=None): self.output_tensors, self.error = output_tensors, error

def get_input_tensor_by_name(request, name): return request.get(name)
"""
FAKE_ENGINE = """
import os
import numpy as np
SEEN = {name: os.environ.get(name) for name in ("ONEDNN_MAX_CPU_ISA", "RAYON_NUM_THREADS")}

class Engine:
    calls = []
    def __init__(self, path, *, threads, options): self.opened = (path, threads, options)
    def infer(self, inputs):
        Engine.calls.append(inputs["input_ids"].shape)
        return {"embedding": inputs["input_ids"].sum(axis=1, keepdims=True).astype(np.float32)}
    def close(self): pass
"""
DRIVE = """
import importlib, sys
import numpy as np
sys.path[:0] = sys.argv[1:]
import triton_python_backend_utils as triton
module = importlib.import_module("1.model")
model = module.TritonPythonModel()
model.initialize({})
engine = importlib.import_module("1.onnxruntime_engine")

def request(*texts):
    return {"TEXT": triton.Tensor("TEXT", np.array([[text] for text in texts], dtype=object))}

long = request(b"cat", b"the cat sat " * 9)
print([int(value) for value in model.execute([long])[0].output_tensors[-1].data.ravel()])
engine.Engine.calls.clear()
responses = model.execute([request(b"cat", b"the cat sat"), request(b"\\xff"), request(b"dog")])
assert not [name for name in sys.modules if name.startswith("trimaran")], "the stage needs trimaran"
print(engine.SEEN["ONEDNN_MAX_CPU_ISA"], engine.SEEN["RAYON_NUM_THREADS"])
print(model._engine.opened[1:])
print([int(value) for value in responses[0].output_tensors[0].data.ravel()], responses[1].error.message[:28])
print([int(value) for value in responses[2].output_tensors[0].data.ravel()])
print(engine.Engine.calls)
"""


def test_a_stage_sets_its_environment_first_and_keeps_requests_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    artifact = changed(
        tiny_artifact(tmp_path / "s"),
        tmp_path / "s",
        execution_environment={"ONEDNN_MAX_CPU_ISA": "AVX2"},
        engine_options={"CPU_RUNTIME_CACHE_CAPACITY": "1"},
    )
    lay_out(artifact, repository=tmp_path / "r", name="m", rows="equal-length", threads=1)
    (tmp_path / "r" / "m" / "1" / "onnxruntime_engine.py").write_text(FAKE_ENGINE)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "triton_python_backend_utils.py").write_text(FAKE_TRITON)
    command = [sys.executable, "-c", DRIVE, str(tmp_path / "r" / "m"), str(tmp_path / "fake")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert found.stderr == ""
    assert found.stdout.splitlines() == [
        "[0, 1]",
        "AVX2 1",
        "(1, {'CPU_RUNTIME_CACHE_CAPACITY': '1'})",
        "[10, 21] A text is not valid UTF-8 (i",
        "[11]",
        "[(2, 3), (1, 5)]",
    ]
