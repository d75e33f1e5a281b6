"""A GPU made of host memory: the driver's calls and a small TensorRT engine, as far as our session uses them."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import numpy as np

VERSION = "11.4.0.106"
FACTS = {"gpu": "NVIDIA A10", "compute_capability": "8.6", "cuda": "13.2"}


class FakeDriver:
    """Keeps what is allocated, so that a leak can be seen; records instead of running while capturing."""

    def __init__(self) -> None:
        self.live: dict[int, Any] = {}
        self.launches = 0
        self.enqueued = 0
        self._recording: list[Callable[[], None]] | None = None
        self._graphs: dict[int, list[Callable[[], None]]] = {}

    def make_current(self) -> None:
        pass

    def facts(self) -> dict[str, str]:
        return dict(FACTS)

    def allocate(self, size_bytes: int) -> int:
        block = ctypes.create_string_buffer(max(1, size_bytes))
        self.live[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def free(self, address: int) -> None:
        del self.live[address]

    allocate_pinned, free_pinned, end_stream = allocate, free, free

    def stream(self) -> int:
        return self.allocate(1)

    def do(self, action: Callable[[], None]) -> None:
        if self._recording is None:
            action()
        else:
            self._recording.append(action)

    def to_device(self, device: int, host: int, size_bytes: int, stream: int) -> None:
        self.do(lambda: ctypes.memmove(device, host, size_bytes) and None)

    def to_host(self, host: int, device: int, size_bytes: int, stream: int) -> None:
        self.do(lambda: ctypes.memmove(host, device, size_bytes) and None)

    def synchronize(self, stream: int) -> None:
        assert self._recording is None, "a stream that is being captured must not be waited for"

    @contextlib.contextmanager
    def capturing(self, stream: int, captured: dict[str, int]) -> Iterator[None]:
        self._recording = []
        yield
        captured["graph"] = self.allocate(1)
        self._graphs[captured["graph"]], self._recording = self._recording, None

    def launch(self, graph: int, stream: int) -> None:
        self.launches += 1
        for action in self._graphs[graph]:
            action()

    def end_graph(self, graph: int) -> None:
        self.free(graph)


class Mode(Enum):
    INPUT = 1
    OUTPUT = 2


class FakeEngine:
    """`sums` is each row's sum of unmasked ids, `doubles` each id twice."""

    streamable_weights_size = 0
    device_memory_size_v2 = 64
    names = ("input_ids", "attention_mask", "sums", "doubles")
    num_io_tensors = len(names)

    def __init__(self, driver: FakeDriver, ranges: list[tuple[tuple[int, int], ...]]) -> None:
        self._driver, self._ranges = driver, ranges
        self.num_optimization_profiles = len(ranges)
        self.contexts: list[FakeContext] = []

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_mode(self, name: str) -> Mode:
        return Mode.INPUT if name in self.names[:2] else Mode.OUTPUT

    def get_tensor_profile_shape(self, name: str, profile: int) -> tuple[tuple[int, int], ...]:
        return self._ranges[profile]

    def get_tensor_dtype(self, name: str) -> Any:
        return np.int64 if name in self.names[:2] else np.float32

    def create_execution_context(self, strategy: Any) -> FakeContext:
        self.contexts.append(FakeContext(self._driver))
        return self.contexts[-1]


class FakeContext:
    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self.profile = -1
        self.shape: tuple[int, int] = (0, 0)
        self._addresses: dict[str, int] = {}

    def set_device_memory(self, address: int, size_bytes: int) -> None:
        pass

    def set_optimization_profile_async(self, profile: int, stream: int) -> None:
        self.profile = profile

    def set_input_shape(self, name: str, shape: tuple[int, int]) -> bool:
        self.shape = shape
        return True

    def infer_shapes(self) -> list[str]:
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape[:1] if name == "sums" else self.shape

    def set_tensor_address(self, name: str, address: int) -> None:
        self._addresses[name] = address

    def execute_async_v3(self, stream: int) -> bool:
        self._driver.enqueued += 1
        self._driver.do(self._compute)
        return True

    def _compute(self) -> None:
        ids, mask = (self._view(name, np.int64) for name in ("input_ids", "attention_mask"))
        self._view("sums", np.float32)[...] = (ids * mask).sum(axis=1)
        self._view("doubles", np.float32)[...] = ids * 2

    def _view(self, name: str, dtype: Any) -> Any:
        shape = self.get_tensor_shape(name)
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = (ctypes.c_uint8 * size).from_address(self._addresses[name])
        return np.frombuffer(memory, dtype).reshape(shape)


class FakeTensorrt:
    """The module: `Runtime(...)` opens whatever engine it was given."""

    __name__ = "tensorrt"
    __version__ = VERSION
    TensorIOMode = Mode

    class Logger:
        WARNING = 1

        def __init__(self, severity: int) -> None:
            pass

    class ExecutionContextAllocationStrategy:
        USER_MANAGED = 2

    def __init__(self, engine: FakeEngine | None) -> None:
        self.opened = 0
        self.engine = engine

    def Runtime(self, logger: Any) -> FakeTensorrt:
        return self

    def deserialize_cuda_engine(self, plan: bytes) -> FakeEngine | None:
        self.opened += 1
        return self.engine

    def nptype(self, dtype: Any) -> Any:
        return dtype
