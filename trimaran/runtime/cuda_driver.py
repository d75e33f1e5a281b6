"""The few calls of NVIDIA's driver that an inference session makes, through ctypes: no CUDA package is needed."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The variable names another file to load as NVIDIA's driver library.
LIBRARY_VARIABLE = "TRIMARAN_CUDA_DRIVER"
LIBRARY = "libcuda.so.1"
_VERSION_FILE = Path("/proc/driver/nvidia/version")
_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76
_CAPTURE_THREAD_LOCAL = 1


class CudaError(RuntimeError):
    """The driver's own name for what went wrong."""


def numbers(version: str) -> tuple[int, ...]:
    """`580.65.06` as (580, 65, 6), so that versions can be compared."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def driver_version() -> str | None:
    """Such as 580.65.06; None where no NVIDIA kernel module is loaded."""
    text = _VERSION_FILE.read_text(encoding="utf-8") if _VERSION_FILE.is_file() else ""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return match.group(1) if match else None


def load_library() -> Any:
    """NVIDIA's driver library. GPUs are numbered as nvidia-smi does. Raises OSError where there is none."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return ctypes.CDLL(os.environ.get(LIBRARY_VARIABLE) or LIBRARY)


def spoken_cuda(library: Any = None) -> str | None:
    """The CUDA that the driver library speaks, such as 13.4; None without a driver. It makes no context."""
    version = ctypes.c_int()
    try:
        library = library if library is not None else load_library()
    except OSError:
        return None
    if library.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def gpu_names(library: Any = None) -> tuple[str, ...]:
    """The visible GPUs by number; empty without a driver or a GPU. It makes no context, so it costs no memory."""
    try:
        library = library if library is not None else load_library()
    except OSError:
        return ()
    count = ctypes.c_int()
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    names = []
    for number in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        library.cuDeviceGet(ctypes.byref(device), number)
        library.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode("utf-8", "replace"))
    return tuple(names)


class Driver:
    """One GPU's primary context. Addresses are plain integers; whoever allocates frees."""

    def __init__(self, device: int = 0, library: Any = None) -> None:
        self._library = library if library is not None else load_library()
        self._call("cuInit", 0)
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), device)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._context = context
        self.make_current()

    def make_current(self) -> None:
        """A context belongs to a thread; a session may be called from another one than made it."""
        self._call("cuCtxSetCurrent", self._context)

    def facts(self) -> dict[str, str]:
        """The GPU's name and compute capability, and the CUDA version that the driver speaks."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device)
        parts = []
        for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR):
            number = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, self._device)
            parts.append(str(number.value))
        return {
            "gpu": name.value.decode("utf-8", "replace"),
            "compute_capability": ".".join(parts),
            "cuda": spoken_cuda(self._library) or "0",
        }

    def free_bytes(self) -> int:
        """Memory of the GPU that nobody uses."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def bus_id(self) -> str:
        """The GPU's PCI address, by which NVML knows it too."""
        address = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", address, len(address), self._device)
        return address.value.decode()

    def allocate(self, size_bytes: int) -> int:
        return self._address("cuMemAlloc_v2", ctypes.c_size_t(max(1, size_bytes)))

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_void_p(address))

    def allocate_pinned(self, size_bytes: int) -> int:
        """Host memory that the GPU reads and writes without the driver's own copy."""
        return self._address("cuMemHostAlloc", ctypes.c_size_t(max(1, size_bytes)), 0)

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", ctypes.c_void_p(address))

    def stream(self) -> int:
        return self._address("cuStreamCreate", 1)

    def end_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def to_device(self, device: int, host: int, size_bytes: int, stream: int) -> None:
        self._copy("cuMemcpyHtoDAsync_v2", device, host, size_bytes, stream)

    def to_host(self, host: int, device: int, size_bytes: int, stream: int) -> None:
        self._copy("cuMemcpyDtoHAsync_v2", host, device, size_bytes, stream)

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def event(self) -> int:
        return self._address("cuEventCreate", 0)

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def elapsed_ms(self, begun: int, ended: int) -> float:
        """GPU time between two recorded events; both must have happened."""
        elapsed = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(elapsed), ctypes.c_void_p(begun), ctypes.c_void_p(ended))
        return elapsed.value

    def end_event(self, event: int) -> None:
        self._call("cuEventDestroy_v2", ctypes.c_void_p(event))

    @contextmanager
    def capturing(self, stream: int, captured: dict[str, int]) -> Iterator[None]:
        """Records what is put on the stream instead of running it; `captured["graph"]` can then be launched."""
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _CAPTURE_THREAD_LOCAL)
        try:
            yield
        finally:
            graph = self._address_last("cuStreamEndCapture", ctypes.c_void_p(stream))
        captured["graph"] = self._address("cuGraphInstantiateWithFlags", ctypes.c_void_p(graph), ctypes.c_ulonglong(0))
        self._call("cuGraphDestroy", ctypes.c_void_p(graph))

    def launch(self, graph: int, stream: int) -> None:
        self._call("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def end_graph(self, graph: int) -> None:
        self._call("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def close(self) -> None:
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _copy(self, name: str, target: int, source: int, size_bytes: int, stream: int) -> None:
        pointers = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        self._call(name, *pointers, ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream))

    def _address(self, name: str, *arguments: Any) -> int:
        """A call whose first argument receives a pointer."""
        result = ctypes.c_void_p()
        self._call(name, ctypes.byref(result), *arguments)
        return int(result.value or 0)

    def _address_last(self, name: str, *arguments: Any) -> int:
        result = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(result))
        return int(result.value or 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._library, name)(*arguments))
        if code == 0:
            return
        error_name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(error_name))
        raise CudaError(f"{name}: {(error_name.value or b'unknown error').decode()} ({code})")


def machine_facts(version: str, driver: Driver | None) -> Mapping[str, str | None]:
    """What an engine is bound to, on this machine; without a driver only the runtime's version is known."""
    known: dict[str, str | None] = {"version": version, "driver": driver_version()}
    return {**known, **(driver.facts() if driver else {"gpu": None, "compute_capability": None, "cuda": None})}
