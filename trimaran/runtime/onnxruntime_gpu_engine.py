"""An ONNX file in ONNX Runtime on a GPU, through its CUDA or TensorRT provider, with nothing heavy on the CPU."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
# ONNX Runtime puts what a provider cannot run on the CPU and says nothing. For small nodes that compute shapes it does
# so on purpose: forbidding every such node would refuse every encoder. Only these must not be there.
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
HEAVY = frozenset({
    "Attention", "BiasGelu", "Conv", "DequantizeLinear", "EmbedLayerNormalization", "Erf", "FastGelu", "FusedMatMul",
    "Gelu", "Gemm", "LayerNormalization", "MatMul", "MultiHeadAttention", "QuantizeLinear",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Softmax", "Tanh",
})  # fmt: skip
_SESSION_PREFIX = "session."
_CUDA = "CUDAExecutionProvider"
# It is on by default, and fp32 products would then keep ten bits of their inputs.
_WITHOUT_TF32 = {"use_tf32": "0"}


class CudaEngine:
    """Provider options are the row's; keys that begin with `session.` go to the session."""

    providers: tuple[str, ...] = (_CUDA,)

    def __init__(
        self, path: str, *, threads: int, options: Mapping[str, Any] | None = None, onnxruntime: Any = None
    ) -> None:
        # It reports its use to its maker otherwise, and writes into the home folder.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        onnxruntime = onnxruntime or importlib.import_module("onnxruntime")
        _load_cuda_libraries(onnxruntime)
        provider_options = {key: str(value) for key, value in (options or {}).items()}
        wanted = self.providers[0]
        # The list of available providers is what was compiled in, not what runs: only absence means something.
        if wanted not in (compiled := onnxruntime.get_available_providers()):
            raise RuntimeError(
                f"{wanted} is wanted, this onnxruntime has {', '.join(compiled)}. "
                "Install onnxruntime-gpu in place of onnxruntime: both own the same directory."
            )
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.add_session_config_entry(RECORD_ASSIGNMENT, "1")
        for key, value in provider_options.items():
            if key.startswith(_SESSION_PREFIX):
                settings.add_session_config_entry(key, value)
        provider = {key: value for key, value in provider_options.items() if not key.startswith(_SESSION_PREFIX)}
        if "device" in provider:
            provider["device_id"] = provider.pop("device")
        # CUDA may stand behind another provider, and must then take the same GPU.
        same_gpu = {key: value for key, value in provider.items() if key == "device_id"}
        chosen = [
            (name, {**(_WITHOUT_TF32 if name == _CUDA else {}), **(provider if name == wanted else same_gpu)})
            for name in self.providers
        ]
        self._session = onnxruntime.InferenceSession(path, settings, providers=chosen)
        # A provider that could not be loaded (no driver, no cuDNN) is dropped with a log line only.
        if (running := list(self._session.get_providers()))[:1] != [wanted]:
            raise RuntimeError(f"{wanted} is wanted, the session took {', '.join(running)}: see onnxruntime's log.")
        if on_cpu := _heavy_on_cpu(self._session):
            raise RuntimeError(f"{wanted} left heavy nodes to the CPU: {', '.join(on_cpu)}.")
        self._outputs = [output.name for output in self._session.get_outputs()]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs)), strict=True))

    def close(self) -> None:
        self._session = None


class TensorrtEngine(CudaEngine):
    """TensorRT for the subgraphs that it takes, CUDA for the rest; `trt_engine_cache_path` keeps built engines."""

    providers = ("TensorrtExecutionProvider", _CUDA)


def _load_cuda_libraries(onnxruntime: Any) -> None:
    """The wheels of CUDA and cuDNN are not on the loader's path. Without this, ONNX Runtime drops the CUDA provider.

    It prints what it does not find. A standard output may hold data, so that goes to the log.
    """
    with contextlib.redirect_stdout(sys.stderr):
        onnxruntime.preload_dlls()


def _heavy_on_cpu(session: Any) -> list[str]:
    """`3 MatMul`, `1 Softmax`: the heavy nodes that run on the CPU, by the session's own account."""
    counts: dict[str, int] = {}
    for part in session.get_provider_graph_assignment_info():
        for node in part.get_nodes() if part.ep_name == "CPUExecutionProvider" else ():
            if node.op_type in HEAVY:
                counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return [f"{count} {kind}" for kind, count in sorted(counts.items())]
