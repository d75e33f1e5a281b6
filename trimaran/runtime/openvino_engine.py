"""An OpenVINO IR, or an ONNX file, in OpenVINO on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
# Kernels are kept for each shape that was met, and every shape costs half a megabyte: OpenVINO's own limit of 5,000
# would let a server grow for hours.
KEPT_KERNELS = 1024


class Engine:
    """With `streams`, calls that come together run side by side, a share of the threads each: two calls of one thread
    wait less for each other than one call of two threads. It costs a second copy of the compiled model.
    """

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None, streams: int = 1) -> None:
        import openvino as ov

        # Without the precision hint OpenVINO quietly runs an fp32 model in bf16 wherever the CPU advertises it.
        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
            "CPU_RUNTIME_CACHE_CAPACITY": KEPT_KERNELS,
            # Threads that are tied to a CPU each wait there for whatever else runs on it, such as a second stage.
            "ENABLE_CPU_PINNING": False,
            **(options or {}),
        }
        compiled = ov.Core().compile_model(path, "CPU", settings)
        self._request = compiled.create_infer_request()
        self._outputs = [output.get_any_name() for output in compiled.outputs]
        self._side_by_side: list[Any] = []
        if streams > 1:
            shared = ov.Core().compile_model(path, "CPU", {**settings, "NUM_STREAMS": streams})
            self._side_by_side = [shared.create_infer_request() for _ in range(streams)]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._request.infer(dict(inputs), share_inputs=True)
        return self._read(self._request)

    def infer_many(self, calls: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The outputs of each call, in order; side by side where the engine was opened with streams."""
        if len(calls) < 2 or not self._side_by_side:
            return [self.infer(inputs) for inputs in calls]
        found: list[dict[str, Array]] = []
        waiting = iter(calls)
        # Calls come in order of length, so those side by side take about as long.
        while together := list(zip(self._side_by_side, waiting, strict=False)):
            failures = [
                _failure_of(request.start_async, dict(inputs), share_inputs=True) for request, inputs in together
            ]
            # All are waited for before one that failed is told: none may still run when the next calls come.
            failures += [_failure_of(request.wait) for request, _ in together]
            if failure := next(filter(None, failures), None):
                raise failure
            found += [self._read(request) for request, _ in together]
        return found

    def _read(self, request: Any) -> dict[str, Array]:
        """The tensors belong to the request and are overwritten by the next call, so each is copied out."""
        return {name: request.get_tensor(name).data.copy() for name in self._outputs}

    def close(self) -> None:
        self._request, self._side_by_side = None, []


def _failure_of(call: Callable[..., object], *arguments: Any, **options: Any) -> Exception | None:
    try:
        call(*arguments, **options)
    except Exception as error:  # whatever OpenVINO raises, the caller gets it
        return error
    return None
