"""What can run an artifact: one row for each backend. Parity, quality and latency code treat all of them alike."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trimaran.core.artifact import Artifact
from trimaran.core.devices import builds_by_trtexec
from trimaran.core.engine_identity import refuse_foreign
from trimaran.core.environment import driver_present, version_of
from trimaran.core.errors import UnavailableError, UsageError, install_hint
from trimaran.core.spec import Signature
from trimaran.runtime import (
    onnxruntime_engine,
    onnxruntime_gpu_engine,
    openvino_engine,
    tensorrt_engine,
    triton_plan_engine,
)
from trimaran.runtime.text import Array

Arrays = Mapping[str, Array]


class Engine(Protocol):
    """A model that is loaded by one backend's library."""

    def infer(self, inputs: Arrays) -> Arrays: ...

    def close(self) -> None: ...


class Session:
    """An open artifact. Calls are synchronous and take host arrays, so that code which times them needs no device."""

    def __init__(self, engine: Engine, signature: Signature) -> None:
        self._engine = engine
        self.signature = signature

    def infer(self, inputs: Arrays) -> Arrays:
        return self._engine.infer(inputs)

    def close(self) -> None:
        self._engine.close()


class EngineClass(Protocol):
    """Opens an engine on a model file. A class of `runtime`, whose file travels with the model to the server."""

    def __call__(self, path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> Engine: ...


def _never() -> bool:
    return False


@dataclass(frozen=True)
class Backend:
    name: str
    engine: EngineClass
    formats: tuple[str, ...]
    # The Python module that must be installed, and the extra of this package that installs it.
    module: str
    extra: str
    needs_driver: bool = False
    # Refuses an artifact that must not be opened here, before the engine's library reads it.
    guard: Callable[[Artifact], None] | None = None
    # The distribution that must own the module, where several do.
    distribution: str = ""
    # Whether it runs here although the module is missing.
    without_module: Callable[[], bool] = _never

    def available(self) -> str | None:
        """None, or the reason why this backend cannot run here."""
        if importlib.util.find_spec(self.module) is None and not self.without_module():
            return f"the Python module {self.module} is not installed"
        if self.distribution and version_of(self.distribution) is None:
            return f"{self.distribution} is not installed, whose {self.module} is another one"
        if self.distribution and version_of(self.module) is not None:
            return f"{self.module} and {self.distribution} are both installed and overwrite each other's files"
        if self.needs_driver and not driver_present():
            return "no NVIDIA driver (libcuda.so.1) on this machine"
        return None

    def hint(self) -> str:
        if self.distribution and version_of(self.distribution) and version_of(self.module):
            wheels = f"{self.module} {self.distribution}"
            return f"pip uninstall -y {wheels}; pip install {self.distribution}: it runs on the CPU as well."
        missing = importlib.util.find_spec(self.module) is None or (
            self.distribution and version_of(self.distribution) is None
        )
        if not missing and self.needs_driver:
            return "Run it on a machine with an NVIDIA GPU and its driver."
        return install_hint(self.extra)


def _torch_engine(path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> Engine:
    """Eager PyTorch. Its engine loads models as the exporter does, so it belongs to `export`, a storey above.

    It is the only name that points upwards, and is resolved when a session opens: see docs/decisions/0022.
    """
    engine: Engine = importlib.import_module("trimaran.export.torch_engine").TorchEngine(
        path, threads=threads, options=options
    )
    return engine


def _tensorrt_engine(path: str, *, threads: int, options: Mapping[str, Any] | None = None) -> Engine:
    """A session of TensorRT's Python module, or of the image's Triton where there is none."""
    if builds_by_trtexec():
        return triton_plan_engine.Engine(path, threads=threads, options=options)
    return tensorrt_engine.Engine(path, threads=threads, options=options)


BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend("torch", _torch_engine, ("torch",), "torch", "export"),
        Backend("onnxruntime", onnxruntime_engine.Engine, ("onnx",), "onnxruntime", "engines"),
        Backend("openvino", openvino_engine.Engine, ("openvino", "onnx"), "openvino", "engines"),
        Backend(
            "tensorrt", _tensorrt_engine, ("tensorrt",), "tensorrt", "gpu",
            needs_driver=True, guard=refuse_foreign, without_module=builds_by_trtexec,
        ),
        Backend(
            "tensorrt_rtx", tensorrt_engine.Engine, ("tensorrt",), "tensorrt_rtx", "rtx",
            needs_driver=True, guard=refuse_foreign,
        ),
        Backend(
            "onnxruntime_cuda", onnxruntime_gpu_engine.CudaEngine, ("onnx",), "onnxruntime", "gpu",
            needs_driver=True, distribution="onnxruntime-gpu",
        ),
        Backend(
            "onnxruntime_tensorrt", onnxruntime_gpu_engine.TensorrtEngine, ("onnx",), "onnxruntime", "gpu",
            needs_driver=True, distribution="onnxruntime-gpu",
        ),
    )
}  # fmt: skip


def backend(name: str) -> Backend:
    if name not in BACKENDS:
        raise UsageError(f"Unknown backend {name!r}.", hint=f"Known: {', '.join(BACKENDS)}.")
    return BACKENDS[name]


@contextlib.contextmanager
def open_session(artifact: Artifact, *, threads: int) -> Iterator[Session]:
    """Opens an artifact with the backend that its manifest names."""
    row = backend(artifact.backend)
    if artifact.format not in row.formats:
        raise UsageError(f"{row.name} opens {', '.join(row.formats)}, not {artifact.format}.")
    if reason := row.available():
        raise UnavailableError(f"{row.name} cannot run here: {reason}.", hint=row.hint())
    refuse_foreign_engine(artifact)
    engine = row.engine(str(artifact.entry_path), threads=threads, options=artifact.engine_options)
    session = Session(engine, artifact.signature)
    try:
        yield session
    finally:
        session.close()


def refuse_foreign_engine(artifact: Artifact) -> None:
    """Raises IntegrityError for an engine that was built for another machine; others pass."""
    if guard := backend(artifact.backend).guard:
        guard(artifact)


def engine_class(name: str) -> EngineClass:
    return backend(name).engine
