"""An OpenVINO IR, or an ONNX file, in OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


class Engine:
    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        import openvino as ov

        # Without the precision hint OpenVINO quietly runs an fp32 model in bf16 wherever the CPU advertises it.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            **(options or {}),
        }
        compiled = ov.Core().compile_model(path, "CPU", settings)
        self._request = compiled.create_infer_request()
        self._outputs = [(output.get_any_name(), output) for output in compiled.outputs]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._request.infer(dict(inputs), share_inputs=True)
        # The tensors belong to the request and are overwritten by the next call, so each is copied out.
        return {name: self._request.get_tensor(output).data.copy() for name, output in self._outputs}

    def close(self) -> None:
        self._request = None
