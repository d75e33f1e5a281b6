"""An ONNX file in ONNX Runtime on the CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]

# For so many microseconds a thread without work spins before it sleeps. ONNX Runtime spins far longer by itself. One
# caller is hardly faster by that, but two processes on the same cores, as a server has them, starve each other.
_SPIN = {"session.intra_op.spin_duration_us": 20}
# A residual sum and its norm, which this would make one node, are several times faster as two: the fused kernel adds up
# number by number (ONNX Runtime 1.31).
_DISABLED = ["SkipLayerNormFusion"]


# Attention of so many pairs of tokens takes gigabytes, which ONNX Runtime would keep after one long text. They are
# given back after such a call. A text of 2,048 tokens has half as many.
_GIVEN_BACK_FROM_PAIRS = 8 << 20
_SHRINK = {"memory.enable_memory_arena_shrinkage": "cpu:0"}


class Engine:
    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        # It reports its use to its maker otherwise, and writes into the home folder.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as ort

        ort.set_default_logger_severity(3)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        for key, value in {**_SPIN, **(options or {})}.items():
            settings.add_session_config_entry(key, str(value))
        self._session = ort.InferenceSession(
            path, settings, providers=["CPUExecutionProvider"], disabled_optimizers=_DISABLED
        )
        self._after_long = ort.RunOptions()
        for key, value in _SHRINK.items():
            self._after_long.add_run_config_entry(key, value)
        self._outputs = [output.name for output in self._session.get_outputs()]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        options = self._after_long if _pairs(inputs) >= _GIVEN_BACK_FROM_PAIRS else None
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs), options), strict=True))

    def close(self) -> None:
        self._session = None


def _pairs(inputs: Mapping[str, Array]) -> int:
    """How many pairs of tokens attention compares in a call: for each row the square of its length."""
    return max((array.shape[0] * array.shape[1] ** 2 for array in inputs.values() if array.ndim == 2), default=0)
