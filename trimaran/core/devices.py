"""Which device a model is proven and timed on: the CPU, or one GPU."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from trimaran.core.environment import driver_present
from trimaran.core.errors import UnavailableError, UsageError
from trimaran.core.gpu_lock import exclusive_gpu
from trimaran.core.gpu_release import GPU_RELEASE, installed_tensorrt, missing_module, trtexec_version
from trimaran.core.spec import Frozen
from trimaran.runtime.cuda_driver import CudaError, Driver, gpu_names, numbers
from trimaran.runtime.triton_plan_engine import triton_with_tensorrt

# The devices on the PCI bus, as Linux shows them, also without a driver.
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA, _DISPLAY_CLASS = "0x10de", "0x03"
# `auto`, `cpu`, `cuda` or `cuda:1`.
ASKED = re.compile(r"auto|cpu|cuda(:\d{1,3})?")


class Device(Frozen):
    kind: Literal["cpu", "cuda"]
    # Of the GPU, as nvidia-smi numbers it.
    number: int = 0
    # Why it was taken, in a few words.
    why: str

    @property
    def name(self) -> str:
        """As PyTorch names it."""
        return f"cuda:{self.number}" if self.kind == "cuda" else "cpu"

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the GPU, so that nothing else of trimaran builds, judges or times on it. A CPU is not held."""
        return exclusive_gpu(self.number) if self.kind == "cuda" else contextlib.nullcontext()

    def __str__(self) -> str:
        return f"{self.name}, {self.why}"


CPU = Device(kind="cpu", why="as asked")


def choose_device(name: str, *, by_trtexec: bool = False) -> Device:
    """Raises UnavailableError where a GPU was asked for and cannot be used.

    `by_trtexec`: TensorRT may also be there as the `trtexec` and the Triton of NVIDIA's image.
    """
    if not ASKED.fullmatch(name):
        raise UsageError(f"Unknown device {name!r}.", hint="Known: auto, cpu, cuda, cuda:1.")
    if name == "cpu":
        return CPU
    number = int(name.partition(":")[2] or 0)
    if reason := gpu_lacks(number, by_trtexec=by_trtexec):
        if name == "auto":
            return Device(kind="cpu", why=f"because {reason}")
        raise UnavailableError(
            f"{name} cannot be used: {reason}.",
            hint="`trimaran doctor` says what is missing.",
        )
    version = installed_tensorrt() or trtexec_version()
    return Device(kind="cuda", number=number, why=f"{gpu_names()[number]} with TensorRT {version}")


def card_without_driver(devices: Path = _PCI_DEVICES) -> str:
    """What a machine lacks that has an NVIDIA GPU and no driver; empty with a driver, or without such a GPU."""
    if driver_present():
        return ""
    if not any(_is_nvidia_gpu(device) for device in devices.glob("*")):
        return ""
    return (
        "an NVIDIA GPU is in this machine, and no driver (libcuda.so.1): install the driver "
        f"{GPU_RELEASE.driver} or newer; a container needs --gpus"
    )


def _is_nvidia_gpu(device: Path) -> bool:
    vendor, kind = device / "vendor", device / "class"
    if not (vendor.is_file() and kind.is_file()):
        return False
    return vendor.read_text().strip() == _NVIDIA and kind.read_text().startswith(_DISPLAY_CLASS)


def has_tensorrt_module() -> bool:
    return installed_tensorrt() is not None and importlib.util.find_spec("tensorrt") is not None


def builds_by_trtexec() -> bool:
    """Whether plans are built by `trtexec` and answered by Triton here, because Python has no TensorRT."""
    return not has_tensorrt_module() and trtexec_version() is not None and triton_with_tensorrt() is not None


def gpu_lacks(number: int = 0, *, by_trtexec: bool = False) -> str:
    """Why no plan can be built and run on the GPU of this number; empty where it can. It asks the driver only."""
    if not driver_present():
        return "there is no NVIDIA driver (libcuda.so.1) on this machine"
    visible = gpu_names()
    if not visible:
        return "the driver shows no GPU (see nvidia-smi and CUDA_VISIBLE_DEVICES; a container needs --gpus)"
    if number >= len(visible):
        return f"there is no GPU {number}: the driver shows {len(visible)}"
    if not has_tensorrt_module() and not (by_trtexec and builds_by_trtexec()):
        return missing_module()
    try:
        return _too_old(Driver(number).facts())
    except CudaError as error:
        return f"the GPU does not answer ({error}); see nvidia-smi"


def _too_old(facts: Mapping[str, str]) -> str:
    """Why TensorRT cannot work with this driver or GPU. The CUDA that the driver library speaks tells its age."""
    if numbers(facts["cuda"])[0] < numbers(GPU_RELEASE.cuda)[0]:
        return (
            f"the driver is too old: it speaks CUDA {facts['cuda']}, and this TensorRT needs CUDA {GPU_RELEASE.cuda}; "
            f"install {GPU_RELEASE.driver} or newer"
        )
    if numbers(facts["compute_capability"]) < numbers(GPU_RELEASE.oldest_capability):
        return (
            f"{facts['gpu']} has compute capability {facts['compute_capability']}, and TensorRT {GPU_RELEASE.tensorrt} "
            f"needs {GPU_RELEASE.oldest_capability} or newer"
        )
    return ""


@functools.cache
def torch_lacks_cuda() -> str:
    """Why eager PyTorch cannot run on a GPU here; empty where it can."""
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else f"torch {torch.__version__} was built without CUDA, or finds no GPU"
