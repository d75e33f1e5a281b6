"""Who can run an artifact: one row a backend, interchangeable in parity, quality and latency code."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from trimaran.artifact import Artifact
from trimaran.errors import UnavailableError, UsageError
from trimaran.spec import Signature

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

    def available(self) -> str | None:
        """None, or the reason why this backend cannot run here."""
        if importlib.util.find_spec(self.module) is None:
            return f"the Python module {self.module} is not installed"
        if self.needs_driver and not driver_present():
            return "no NVIDIA driver (libcuda.so.1) on this machine"
        return None

    def hint(self) -> str:
        return f"pip install 'trimaran[{self.extra}]' -c constraints.txt" if self.extra else "pip install trimaran"


BACKENDS: dict[str, Backend] = {
    row.name: row
    for row in (
        Backend("torch", "trimaran.export.torch_engine:Engine", ("torch",), "torch", ""),
        Backend("onnxruntime", "trimaran.runtime.onnxruntime_engine:Engine", ("onnx",), "onnxruntime", "cpu"),
        Backend("openvino", "trimaran.runtime.openvino_engine:Engine", ("openvino", "onnx"), "openvino", "cpu"),
    )
}


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
    engine: Any = engine_class(row.name)(str(artifact.entry_path), threads=threads, options=artifact.engine_options)
    session = Session(engine, artifact.signature)
    try:
        yield session
    finally:
        session.close()


def driver_present() -> bool:
    """Whether a GPU driver can be loaded. TensorRT without one returns nulls and then crashes."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def engine_class(name: str) -> Any:
    """The class of a backend's engines, called as `engine(path, threads=…, options=…)`."""
    module, _, name = backend(name).engine.partition(":")
    return getattr(importlib.import_module(module), name)
