"""What NVML tells of a GPU. The module here has the names of nvidia-ml-py; no GPU is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trimaran.benchmarks.measure.gpu_state import GpuFacts, GpuState, gpu_state


def refuse(*arguments: Any) -> Any:
    raise RuntimeError("Not Supported")


def nvml(**changes: Any) -> Any:
    names = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda address: address,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4 | 0x40,
        "nvmlDeviceGetPowerUsage": lambda handle: 143_200,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1695,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
    }
    return SimpleNamespace(**(names | changes))


def test_clocks_power_temperature_and_throttling_are_told() -> None:
    state = gpu_state("0000:01:00.0", nvml())
    assert state is not None
    words = "clock 1695 of 1980 MHz, 143 W, 61 °C, throttled by power cap, thermal limit (hardware)"
    assert str(state) == words
    facts = GpuFacts(times_ms={"1x16": {"copy_in": 0.01, "kernels": 0.5}}, memory_bytes=120_000_000, state=state)
    assert facts.words("tensorrt-fp16", "1x16") == (
        "tensorrt-fp16 by the GPU's events at 1x16, without CUDA graphs: copy in 0.010 ms, kernels 0.500 ms; "
        f"it holds 120 MB of GPU memory; {words}."
    )


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    silent = nvml(nvmlDeviceGetPowerUsage=refuse, nvmlDeviceGetCurrentClocksEventReasons=refuse)
    assert gpu_state("0000:01:00.0", silent) == GpuState(clock_mhz=1695, most_mhz=1980, temperature_c=61)


def test_without_nvml_there_is_no_state() -> None:
    assert gpu_state("0000:01:00.0", nvml(nvmlInit=refuse)) is None
    assert gpu_state("0000:01:00.0", nvml(nvmlDeviceGetHandleByPciBusId=refuse)) is None
