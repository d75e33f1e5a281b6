"""A python-based Triton backend that serves an engine file as the official backends of those names do.

It is copied as `model.py` into a backend folder of that name, beside the engine's file, for the local server only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

DEFAULT_FILE = {"onnxruntime": "model.onnx", "openvino": "model.xml", "tensorrt": "model.plan"}
# The engine's files import one another as parts of a package. Their folder has the name of the engine's library.
_PACKAGE = "trimaran_backend"


class TritonPythonModel:
    def initialize(self, args: Mapping[str, str]) -> None:
        import triton_python_backend_utils

        self._triton: Any = triton_python_backend_utils
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        settings = self._settings(folder)
        # The engine's library reads these once, when it is first imported.
        os.environ.update(settings["execution_environment"])
        backend = config["backend"]
        # Triton imports a backend's model.py by its bare name, so its neighbours are in no package.
        package = ModuleType(_PACKAGE)
        package.__path__ = [str(Path(__file__).parent)]
        sys.modules[_PACKAGE] = package
        engine = importlib.import_module(f"{_PACKAGE}.{backend}_engine")
        options = dict(settings["engine_options"])
        if args.get("model_instance_kind") == "GPU":
            options["device"] = int(args["model_instance_device_id"])
        self._engine = engine.Engine(
            str(folder / (config["default_model_filename"] or DEFAULT_FILE[backend])),
            threads=min(settings["threads"], len(os.sched_getaffinity(0))),
            options=options,
        )
        self._encoder = "tokenizer" in settings
        self._inputs = [tensor["name"] for tensor in config["input"]]
        self._outputs = [tensor["name"] for tensor in config["output"]]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Runs each request by itself: on a CPU, joining rows gains little, and padding comes on top."""
        return [self._respond(request) for request in requests]

    def finalize(self) -> None:
        self._engine.close()

    def _respond(self, request: Any) -> Any:
        find = self._triton.get_input_tensor_by_name
        inputs = {name: find(request, name).as_numpy() for name in self._inputs}
        shapes = {array.shape for array in inputs.values()}
        # OpenVINO 2026 refuses a right request of the same shape after one whose inputs do not fit each other.
        if self._encoder and len(shapes) > 1:
            sentence = f"The inputs of an encoder have one shape, found {', '.join(map(str, sorted(shapes)))}."
            return self._triton.InferenceResponse(
                error=self._triton.TritonError(sentence, self._triton.TritonError.INVALID_ARG)
            )
        try:
            outputs = self._engine.infer(inputs)
        except Exception as error:  # whatever the engine says of this request's values, the others are answered
            return self._triton.InferenceResponse(error=self._triton.TritonError(str(error)))
        tensors = [self._triton.Tensor(name, outputs[name]) for name in self._outputs]
        return self._triton.InferenceResponse(output_tensors=tensors)

    @staticmethod
    def _settings(folder: Path) -> dict[str, Any]:
        """What trimaran proved the engine with; plain defaults for a model that came from elsewhere."""
        path = folder / "serving.json"
        if path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8")))
        return {"execution_environment": {}, "threads": len(os.sched_getaffinity(0)), "engine_options": {}}
