from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.quantize.tensorrt.engines import CALIBRATION, QUIET, World
from trimaran.core.backends import BACKENDS, driver_present
from trimaran.core.corpus import encoder_of
from trimaran.core.environment import version_of
from trimaran.core.errors import UnavailableError
from trimaran.quantize.candidates import candidate
from trimaran.quantize.settings import MakerSettings
from trimaran.quantize.stage import to_precision
from trimaran.runtime.onnxruntime_gpu_engine import NO_FALLBACK, CudaEngine, TensorrtEngine


class FakeRuntime:
    """ONNX Runtime as it behaves: what it has compiled in says nothing of what a session really takes."""

    class SessionOptions:
        def __init__(self) -> None:
            self.entries: dict[str, str] = {}

        def add_session_config_entry(self, key: str, value: str) -> None:
            self.entries[key] = value

    def __init__(self, compiled: list[str], taken: list[str]) -> None:
        self._compiled, self._taken = compiled, taken
        self.asked: Any = None
        self.settings: Any = None

    def get_available_providers(self) -> list[str]:
        return self._compiled

    def InferenceSession(self, path: str, settings: Any, providers: Any) -> FakeRuntime:
        self.asked, self.settings = providers, settings
        return self

    def get_providers(self) -> list[str]:
        return self._taken

    def get_outputs(self) -> list[Any]:
        return [type("Output", (), {"name": "y"})()]

    def run(self, names: list[str], inputs: dict[str, Any]) -> list[Any]:
        return [inputs["x"] * 2]


TENSORRT, CUDA, CPU = "TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"


def test_fallback_to_the_cpu_is_forbidden() -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [CUDA, CPU])
    engine = CudaEngine("m.onnx", threads=1, options={"device_id": 1}, onnxruntime=runtime)
    assert runtime.settings.entries == {NO_FALLBACK: "1"}
    assert runtime.asked == [(CUDA, {"device_id": "1"})]
    assert engine.infer({"x": np.float32(2)}) == {"y": 4}


def test_tensorrt_keeps_its_engines_and_may_leave_the_rest_to_cuda() -> None:
    runtime = FakeRuntime([TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU])
    TensorrtEngine("m.onnx", threads=1, options={"trt_engine_cache_path": "/c"}, onnxruntime=runtime)
    assert runtime.asked == [(TENSORRT, {"trt_engine_cache_path": "/c"}), (CUDA, {})]


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
    artifact = to_precision(
        world.exported("bert"),
        candidate(name),
        MakerSettings(calibration=CALIBRATION),
        store=world.store,
        progress=QUIET,
    )
    assert encoder_of(artifact) and artifact.checks[-1].holds
