"""The machine and the library versions under which a thing was made or measured."""

from __future__ import annotations

import functools
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from trimaran.core.spec import Frozen
from trimaran.runtime.cuda_driver import gpu_names, load_library

LIBRARIES = (
    "torch", "transformers", "tokenizers", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu",
    "openvino", "nncf", "tensorrt", "tensorrt-rtx", "nvidia-pytriton", "tritonclient", "numpy", "sentence-transformers",
)  # fmt: skip


class Environment(Frozen):
    system: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int
    gpu: str | None = None
    libraries: dict[str, str] = {}

    def differences(self, other: Environment) -> tuple[str, ...]:
        """Names of the fields that differ. Numbers from different environments never share a table."""
        mine, theirs = self.model_dump(), other.model_dump()
        return tuple(name for name in mine if mine[name] != theirs[name])


def capture() -> Environment:
    return Environment(
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=_memory_bytes(),
        gpu=", ".join(gpu_names()) or None,
        libraries={name: version for name in LIBRARIES if (version := version_of(name))},
    )


def tools(*names: str) -> dict[str, str]:
    """The pinned versions of the named distributions, for a recipe."""
    return {name: version_of(name) or "absent" for name in names}


@functools.cache
def version_of(distribution: str) -> str | None:
    """The installed version. Reading it takes milliseconds, and every recipe names several."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def driver_present() -> bool:
    """Whether a GPU driver can be loaded. TensorRT without one returns nulls and then crashes."""
    try:
        load_library()
    except OSError:
        return False
    return True


def cpu_flags() -> frozenset[str]:
    """Instruction sets that the CPU advertises. Not all of them may run: see `instructions.probe`."""
    return frozenset(_cpuinfo().get("flags", "").split())


def _cpu_name() -> str:
    info = _cpuinfo()
    name = info.get("model name") or platform.processor() or platform.machine()
    model = "-".join(info[key] for key in ("cpu family", "model", "stepping") if key in info)
    return f"{name} ({model})" if model else name


def _cpuinfo() -> dict[str, str]:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return {}
    first = path.read_text(encoding="utf-8").split("\n\n", 1)[0]
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _memory_bytes() -> int:
    if sys.platform == "win32":  # pragma: no cover
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
