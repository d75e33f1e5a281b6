"""Eager PyTorch as an engine: the reference for the proofs and the baseline of the benchmarks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.errors import IntegrityError
from trimaran.core.spec import ModelRef
from trimaran.core.tasks import task
from trimaran.export.locate import current_digest
from trimaran.runtime.text import Array


class TorchEngine:
    """`path` is the `model_ref.json` of a reference artifact. The weights are read from the user's folder.

    Options: `attention` (`sdpa` or `eager`), `device` (`cuda:0`), and for baselines `dtype` (a name in torch) and
    `compile`. On a GPU fp32 stays fp32: TF32 is off.
    """

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        import torch

        from trimaran.export.wrappers import complete_module

        torch.set_num_threads(threads)
        ref = ModelRef.model_validate_json(Path(path).read_text(encoding="utf-8"))
        if ref.directory and current_digest(ref) != ref.digest:
            raise IntegrityError(
                f"The model in {ref.directory} has changed since it was exported.", hint="Run `trimaran export` again."
            )
        self._torch = torch
        options = options or {}
        self._module = complete_module(ref, attention=str(options.get("attention", "sdpa")))
        self._device = str(options.get("device", "cpu"))
        if self._device != "cpu":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            self._module = self._module.to(self._device)
        if "dtype" in options:
            self._module = self._module.to(getattr(torch, str(options["dtype"])))
        if options.get("compile"):
            self._module = torch.compile(self._module, dynamic=False)
        self._inputs = ref.inputs
        self._outputs = [spec.name for spec in task(ref.task).outputs(ref)]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._torch.inference_mode():
            return self._copied_out(self._module(*self._copied_in(inputs)))

    def gpu_times_ms(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """GPU time of one call by events: copies to the GPU, kernels, copies back."""
        events = [self._torch.cuda.Event(enable_timing=True) for _ in range(4)]
        with self._torch.inference_mode(), self._torch.cuda.device(self._device):
            events[0].record()
            tensors = self._copied_in(inputs)
            events[1].record()
            output = self._module(*tensors)
            events[2].record()
            self._copied_out(output)
            events[3].record()
            events[3].synchronize()
        times = [begun.elapsed_time(ended) for begun, ended in itertools.pairwise(events)]
        return dict(zip(("copy_in", "kernels", "copy_out"), times, strict=True))

    def _copied_in(self, inputs: Mapping[str, Array]) -> list[Any]:
        tensors = (self._torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in self._inputs)
        return [tensor.to(self._device) for tensor in tensors]

    def _copied_out(self, output: Any) -> dict[str, Array]:
        values = (output,) if isinstance(output, self._torch.Tensor) else output
        # numpy has no bfloat16: such a baseline answers in float32.
        values = (value.float() if value.dtype == self._torch.bfloat16 else value for value in values)
        return dict(zip(self._outputs, (value.cpu().numpy() for value in values), strict=True))

    def close(self) -> None:
        self._module = None
