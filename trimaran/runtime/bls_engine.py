"""An engine that is another model of the same Triton, called from inside the text stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]


class Engine:
    """`path` is the version's folder and the model to call; `options["outputs"]` are the tensors to ask for.

    It calls the same version as its own: while versions change, both are there, and an answer is of one.
    """

    def __init__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> None:
        import triton_python_backend_utils

        self._triton: Any = triton_python_backend_utils
        self._model, self._version = Path(path).name, int(Path(path).parent.name)
        self._outputs = list((options or {})["outputs"])

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        # The engine may live on a GPU; what is read here must be in ordinary memory.
        memory = self._triton.PreferredMemory(self._triton.TRITONSERVER_MEMORY_CPU)
        response = self._triton.InferenceRequest(
            model_name=self._model,
            model_version=self._version,
            inputs=[self._triton.Tensor(name, array) for name, array in inputs.items()],
            requested_output_names=self._outputs,
            preferred_memory=memory,
        ).exec()
        if response.has_error():
            raise RuntimeError(response.error().message())
        return {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}

    def close(self) -> None:
        pass
