from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.quantize.tensorrt.engines import CALIBRATION, QUIET, World
from trimaran.core.backends import BACKENDS, driver_present
from trimaran.core.corpus import encoder_of
from trimaran.core.environment import version_of
from trimaran.core.errors import UnavailableError
from trimaran.core.gpu_release import installed_tensorrt
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.onnxruntime_gpu_engine import RECORD_ASSIGNMENT, CudaEngine, TensorrtEngine, _heavy_on_cpu


class FakeRuntime:
    """ONNX Runtime as it behaves: what it has compiled in says nothing of what a session really takes."""

    class SessionOptions:
        def __init__(self) -> None:
            self.entries: dict[str, str] = {}

        def add_session_config_entry(self, key: str, value: str) -> None:
            self.entries[key] = value

    def __init__(self, compiled: list[str], taken: list[str], on_cpu: tuple[str, ...] = ("Shape", "Gather")) -> None:
        self._compiled, self._taken, self._on_cpu = compiled, taken, on_cpu
        self.asked: Any = None
        self.settings: Any = None

    def preload_dlls(self) -> None:
        sys.stdout.write("Failed to load libcublasLt.so.13\n")

    def get_available_providers(self) -> list[str]:
        return self._compiled

    def InferenceSession(self, path: str, settings: Any, providers: Any) -> FakeRuntime:
        self.asked, self.settings = providers, settings
        return self

    def get_providers(self) -> list[str]:
        return self._taken

    def get_provider_graph_assignment_info(self) -> list[Any]:
        def part(provider: str, *kinds: str) -> Any:
            return SimpleNamespace(
                ep_name=provider, get_nodes=lambda: [SimpleNamespace(op_type=kind) for kind in kinds]
            )

        return [part(self._taken[0], "MatMul", "Softmax"), *(part(CPU, kind) for kind in self._on_cpu)]

    def get_outputs(self) -> list[Any]:
        return [type("Output", (), {"name": "y"})()]

    def run(self, names: list[str], inputs: dict[str, Any]) -> list[Any]:
        return [inputs["x"] * 2]


TENSORRT, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"


def test_nodes_that_compute_shapes_may_run_on_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [CUDA, CPU])
    engine = CudaEngine("m.onnx", threads=1, options={"device_id": 1}, onnxruntime=runtime)
    assert runtime.settings.entries == {RECORD_ASSIGNMENT: "1"}
    assert runtime.asked == [(CUDA, {"use_tf32": "0", "device_id": "1"})]
    assert engine.infer({"x": np.float32(2)}) == {"y": 4}
    assert capsys.readouterr() == ("", "Failed to load libcublasLt.so.13\n"), "its words are no data"


def test_a_heavy_node_on_the_cpu_is_an_error_that_counts_it() -> None:
    runtime = FakeRuntime([CUDA, CPU], [CUDA, CPU], on_cpu=("Shape", "MatMul", "Softmax", "MatMul"))
    with pytest.raises(RuntimeError, match="left heavy nodes to the CPU: 2 MatMul, 1 Softmax"):
        CudaEngine("m.onnx", threads=1, onnxruntime=runtime)


def test_the_real_session_tells_where_its_nodes_run(world: World) -> None:
    """On the CPU package every node is there: the same account that a GPU session gives."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry(RECORD_ASSIGNMENT, "1")
    path = str(world.exported("bert").entry_path)
    session = onnxruntime.InferenceSession(path, settings, providers=[CPU])
    assert any(words.endswith(" MatMul") for words in _heavy_on_cpu(session))


def test_both_packages_at_once_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.core.backends.version_of", lambda name: "1.31.1")
    row = BACKENDS["onnxruntime_cuda"]
    assert row.available() == "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
    assert row.hint().startswith("pip uninstall -y onnxruntime onnxruntime-gpu; pip install onnxruntime-gpu")


def test_tensorrt_keeps_its_engines_and_may_leave_the_rest_to_cuda() -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU])
    TensorrtEngine("m.onnx", threads=1, options={"trt_engine_cache_path": "/c"}, onnxruntime=runtime)
    assert runtime.asked == [(TENSORRT, {"trt_engine_cache_path": "/c"}), (CUDA, {"use_tf32": "0"})]


def test_both_providers_take_the_same_gpu() -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU])
    TensorrtEngine("m.onnx", threads=1, options={"device": 1}, onnxruntime=runtime)
    assert [provider["device_id"] for _, provider in runtime.asked] == ["1", "1"]


def test_a_provider_that_was_silently_dropped_is_an_error() -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [CPU])
    with pytest.raises(RuntimeError, match=f"{CUDA} is wanted, the session took {CPU}"):
        CudaEngine("m.onnx", threads=1, onnxruntime=runtime)
    with pytest.raises(RuntimeError, match=f"{TENSORRT} is wanted, the session took {CUDA}"):
        TensorrtEngine("m.onnx", threads=1, onnxruntime=FakeRuntime([TENSORRT, CUDA], [CUDA, CPU]))


def test_the_real_cpu_package_is_refused_by_name() -> None:
    if version_of("onnxruntime-gpu"):
        pytest.skip("onnxruntime-gpu is installed")
    with pytest.raises(RuntimeError, match="Install onnxruntime-gpu in place of onnxruntime"):
        CudaEngine("m.onnx", threads=1)


@pytest.mark.parametrize("name", ["onnxruntime-cuda-fp32", "onnxruntime-cuda-fp16", "onnxruntime-tensorrt-fp16"])
def test_a_gpu_candidate_without_a_gpu_is_unavailable(world: World, name: str) -> None:
    if BACKENDS[candidate(name).backend].available() is None:
        pytest.skip("this machine has onnxruntime-gpu and a driver")
    with pytest.raises(UnavailableError, match=r"cannot be made here.*trimaran\[gpu\]"):
        world.graph("bert", name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["onnxruntime-cuda-fp32", "onnxruntime-cuda-fp16", "onnxruntime-tensorrt-fp16"])
def test_a_gpu_candidate_is_proven_on_a_real_gpu(world: World, name: str) -> None:
    if not driver_present() or version_of("onnxruntime-gpu") is None:
        pytest.skip("no NVIDIA driver, or no onnxruntime-gpu")
    if name == "onnxruntime-tensorrt-fp16" and installed_tensorrt():
        pytest.skip(
            "onnxruntime-gpu links libnvinfer.so.10, and the installed TensorRT is newer: in the container only"
        )
    artifact = to_precision(
        world.exported("bert"),
        candidate(name),
        MakerSettings(calibration=CALIBRATION),
        store=world.store,
        progress=QUIET,
    )
    assert encoder_of(artifact) and artifact.checks[-1].holds
