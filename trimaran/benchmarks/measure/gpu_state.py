"""What a GPU tells of a contender, as facts: times by events, memory, and clocks and power where NVML tells them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from trimaran.core.spec import Frozen

# Why a GPU runs slower than it could: NVML's bits, by the names of its header.
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal limit (software)",
    0x40: "thermal limit (hardware)",
    0x80: "power brake",
}


class GpuState(Frozen):
    # Of the multiprocessors, now and at most.
    clock_mhz: int | None = None
    most_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    # Why the clock is lower than it could be.
    throttled_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = (
            f"clock {self.clock_mhz} of {self.most_mhz} MHz" if self.clock_mhz and self.most_mhz else "",
            f"{self.power_w:.0f} W" if self.power_w is not None else "",
            f"{self.temperature_c} °C" if self.temperature_c is not None else "",
            f"throttled by {', '.join(self.throttled_by)}" if self.throttled_by else "",
        )
        return ", ".join(filter(None, words))


class GpuFacts(Frozen):
    # By shape: the median milliseconds of each part of a call, without CUDA graphs: `copy_in`, `kernels`, `copy_out`.
    times_ms: dict[str, dict[str, float]]
    # What the open engine holds of the GPU's memory after all shapes, beside the CUDA context of its process.
    memory_bytes: int
    # Right after the calls; None where NVML does not tell it.
    state: GpuState | None = None
    # Why a TensorRT plan runs without CUDA graphs, although it should have had them; empty where it has them.
    capture_failure: str = ""

    def words(self, name: str, shape: str) -> str:
        """One sentence for a report."""
        parts = ", ".join(f"{part.replace('_', ' ')} {ms:.3f} ms" for part, ms in self.times_ms[shape].items())
        return (
            f"{name} by the GPU's events at {shape}, without CUDA graphs: {parts}; it holds "
            f"{self.memory_bytes / 1e6:.0f} MB of GPU memory{f'; {self.state}' if self.state else ''}."
        )


def gpu_state(bus_id: str, nvml: Any = None) -> GpuState | None:
    """Of the GPU at this PCI address: NVML numbers GPUs that CUDA_VISIBLE_DEVICES hides. None without NVML.

    A GPU that does not tell one of the facts, such as a virtual one, leaves it out.
    """
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # neither the module nor NVIDIA's library must be there
        return None
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
        reasons = _asked(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
        power_mw = _asked(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return GpuState(
            clock_mhz=_asked(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            most_mhz=_asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_w=None if power_mw is None else power_mw / 1e3,
            temperature_c=_asked(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled_by=tuple(name for bit, name in _REASONS.items() if reasons & bit),
        )
    except Exception:  # NVML does not know the GPU at this address; a report without its state is still right
        return None
    finally:
        nvml.nvmlShutdown()


def _asked(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # NVMLError_NotSupported and its like: this GPU does not tell
        return None
