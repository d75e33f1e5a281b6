"""Who can run an artifact: one row a backend, interchangeable in parity, quality and latency code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from trimaran.core.artifact import Artifact
from trimaran.core.environment import driver_present, version_of
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.spec import Signature

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


class Engine(Protocol):
    """What an engine class of the table offers; built as `Engine(path, threads=…, options=…)`."""

    def infer(self, inputs: Arrays) -> Arrays: ...

    def close(self) -> None: ...


class Session:
    """An open artifact. Synchronous and on host arrays, so whoever times it needs to know no device."""

    def __init__(self, engine: Engine, signature: Signature) -> None:
        self._engine = engine
        self.signature = signature

    def infer(self, inputs: Arrays) -> Arrays:
        return self._engine.infer(inputs)

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True)
class Backend:
    name: str
    engine: str
    formats: tuple[str, ...]
    module: str
    extra: str
    needs_driver: bool = False
    # `module:function(artifact)` that refuses what must not be opened here, before the engine's library sees it.
    guard: str = ""
    # The distribution that must own the module, where several do.
    distribution: str = ""

    def available(self) -> str | None:
        """None, or the reason why this backend cannot run here."""
        if importlib.util.find_spec(self.module) is None:
            return f"the Python module {self.module} is not installed"
        if self.distribution and version_of(self.distribution) is None:
            return f"{self.distribution} is not installed, whose {self.module} is another one"
        if self.needs_driver and not driver_present():
            return "no NVIDIA driver (libcuda.so.1) on this machine"
        return None

    def hint(self) -> str:
        missing = importlib.util.find_spec(self.module) is None or (
            self.distribution and version_of(self.distribution) is None
        )
        if not missing and self.needs_driver:
            return "Run it on a machine with an NVIDIA GPU and its driver."
        return f"pip install 'trimaran[{self.extra}]' -c constraints.txt" if self.extra else "pip install trimaran"


_FOREIGN = "trimaran.core.engine_identity:refuse_foreign"

BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend("torch", "trimaran.export.torch_engine:Engine", ("torch",), "torch", ""),
        Backend("onnxruntime", "trimaran.runtime.onnxruntime_engine:Engine", ("onnx",), "onnxruntime", "cpu"),
        Backend("openvino", "trimaran.runtime.openvino_engine:Engine", ("openvino", "onnx"), "openvino", "cpu"),
        Backend(
            "tensorrt", "trimaran.runtime.tensorrt_engine:Engine", ("tensorrt",), "tensorrt", "gpu",
            needs_driver=True, guard=_FOREIGN,
        ),
        Backend(
            "tensorrt_rtx", "trimaran.runtime.tensorrt_engine:Engine", ("tensorrt",), "tensorrt_rtx", "rtx",
            needs_driver=True, guard=_FOREIGN,
        ),
        Backend(
            "onnxruntime_cuda", "trimaran.runtime.onnxruntime_gpu_engine:CudaEngine", ("onnx",), "onnxruntime", "gpu",
            needs_driver=True, distribution="onnxruntime-gpu",
        ),
        Backend(
            "onnxruntime_tensorrt", "trimaran.runtime.onnxruntime_gpu_engine:TensorrtEngine", ("onnx",), "onnxruntime",
            "gpu", needs_driver=True, distribution="onnxruntime-gpu",
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
    engine: Any = engine_class(row.name)(str(artifact.entry_path), threads=threads, options=artifact.engine_options)
    session = Session(engine, artifact.signature)
    try:
        yield session
    finally:
        session.close()


def refuse_foreign_engine(artifact: Artifact) -> None:
    """Raises IntegrityError for an engine that was built for another machine; others pass."""
    row = backend(artifact.backend)
    if row.guard:
        _resolve(row.guard)(artifact)


def engine_class(name: str) -> Any:
    """The class of a backend's engines, called as `engine(path, threads=…, options=…)`."""
    return _resolve(backend(name).engine)


def _resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
