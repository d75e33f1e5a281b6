"""Which Triton image, TensorRT, CUDA and driver belong together. A plan opens only in the TensorRT that built it.

At run time a version is asked of the library that is there. This table says what to install, and what to warn of.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

from trimaran.core.environment import version_of
from trimaran.core.spec import Frozen
from trimaran.runtime.cuda_driver import numbers

TENSORRT_WHEELS = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12")
# Where older official images have it, outside of the search path.
_TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
# How it begins, such as `&&&& RUNNING TensorRT.trtexec [TensorRT v110201] [b5]`, which is 11.2.1.5.
_BANNER = re.compile(r"TensorRT\.trtexec \[TensorRT v(\d+)(\d\d)(\d\d)\](?: \[b(\d+)\])?")


class GpuRelease(Frozen):
    # Of the official image: nvcr.io/nvidia/tritonserver:<triton>-py3.
    triton: str
    # The TensorRT inside it.
    tensorrt: str
    cuda: str
    # The oldest driver of its CUDA.
    driver: str
    # The oldest GPUs that its TensorRT builds for.
    oldest_capability: str = "7.5"

    @property
    def wheel(self) -> str:
        """What pip installs of the same TensorRT."""
        return f"tensorrt=={self.tensorrt}.*"


# The image and the wheel that `deploy/Dockerfile` and the extra `gpu` name.
GPU_RELEASE = GpuRelease(triton="26.08", tensorrt="11.2.1", cuda="13.4.1", driver="580.65.06")


def installed_tensorrt() -> str | None:
    return next((version for name in TENSORRT_WHEELS if (version := version_of(name))), None)


def trtexec_program() -> str | None:
    """Where `trtexec` is. The official images have one."""
    return shutil.which("trtexec") or shutil.which(_TRTEXEC)


def trtexec_version() -> str | None:
    """The TensorRT of this machine's `trtexec`, such as 11.2.1.5; None without it."""
    program = trtexec_program()
    return _version_in_banner(program) if program else None


@functools.cache
def _version_in_banner(program: str) -> str | None:
    try:
        help_text = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    banner = _BANNER.search(help_text)
    return ".".join(str(int(part)) for part in banner.groups() if part) if banner else None


def missing_module() -> str:
    """What to install where TensorRT has no Python module. The wheel must be of the same version as the image."""
    version = trtexec_version()
    if version is None:
        return f"TensorRT is not installed (pip install '{GPU_RELEASE.wheel}')"
    wheel = ".".join(version.split(".")[:3])
    return f"TensorRT {version} is here as trtexec alone, without a Python module (pip install 'tensorrt=={wheel}.*')"


def mismatches(
    tensorrt: str | None, driver: str | None, cuda: str | None = None, release: GpuRelease = GPU_RELEASE
) -> tuple[str, ...]:
    """What keeps a plan built here from serving in the image of this release. None means not present.

    NVIDIA's images bring a newer driver library for older drivers: it counts which `cuda` that speaks.
    """
    reasons = []
    if tensorrt and numbers(tensorrt)[:3] != numbers(release.tensorrt):
        reasons.append(
            f"TensorRT {tensorrt} is installed, the image {release.triton} has {release.tensorrt}: a plan of one does "
            f"not open in the other; pip install '{release.wheel}'"
        )
    speaks_it = cuda is not None and numbers(cuda)[0] >= numbers(release.cuda)[0]
    if driver and numbers(driver) < numbers(release.driver) and not speaks_it:
        reasons.append(f"the driver {driver} is too old for CUDA {release.cuda}: install {release.driver} or newer")
    return tuple(reasons)
