"""Eager PyTorch fp32 as an engine: the reference that every other engine is proven against and measured beside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.errors import IntegrityError
from trimaran.core.families import family
from trimaran.core.spec import ModelRef
from trimaran.core.tasks import task
from trimaran.export.locate import current_digest

Array = npt.NDArray[Any]


class Engine:
    """`path` is the reference artifact's `model_ref.json`; the weights stay where the user keeps them.

    Options: `attention`; and for baselines `dtype`, a torch name, and `compile`.
    """

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        import torch

        from trimaran.export.wrappers import complete_module

        torch.set_num_threads(threads)
        ref = ModelRef.model_validate_json(Path(path).read_text(encoding="utf-8"))
        if not ref.module and current_digest(ref) != ref.digest:
            raise IntegrityError(
                f"The model in {ref.directory} has changed since it was exported.", hint="Run `trimaran export` again."
            )
        self._torch = torch
        asked = options or {}
        self._module = complete_module(ref, attention=str(asked.get("attention", "sdpa")))
        if "dtype" in asked:
            self._module = self._module.to(getattr(torch, str(asked["dtype"])))
        if asked.get("compile"):
            self._module = torch.compile(self._module, dynamic=False)
        self._inputs = ref.inputs or family(ref.family).inputs
        self._outputs = [spec.name for spec in task(ref.task).outputs(ref)]

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._torch.inference_mode():
            tensors = [self._torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in self._inputs]
            found = self._module(*tensors)
        values = (found,) if isinstance(found, self._torch.Tensor) else found
        # numpy knows no bfloat16: a baseline in it answers in float32.
        whole = (value.float() if value.dtype == self._torch.bfloat16 else value for value in values)
        return dict(zip(self._outputs, (value.numpy() for value in whole), strict=True))

    def close(self) -> None:
        self._module = None
