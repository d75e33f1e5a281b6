"""Examines this machine: which backends run, and which advertised instruction sets really execute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from trimaran.core.backends import BACKENDS
from trimaran.core.devices import card_without_driver, gpu_lacks, torch_lacks_cuda
from trimaran.core.environment import Environment, capture, driver_present
from trimaran.core.errors import UnavailableError
from trimaran.core.gpu_release import installed_tensorrt, mismatches
from trimaran.core.instructions import Probed, probe
from trimaran.quantize.candidates import CANDIDATES
from trimaran.runtime.cuda_driver import driver_version, spoken_cuda
from trimaran.serving.triton import installation


class Availability(NamedTuple):
    # Why it cannot run here; None if it can.
    reason: str | None
    # What to do about it.
    hint: str


@dataclass(frozen=True)
class Examination:
    environment: Environment
    # Each backend, and Triton.
    backends: dict[str, Availability]
    instructions: tuple[Probed, ...]
    # What a machine with an NVIDIA GPU lacks to build, time and serve plans.
    gpu_warnings: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """What `trimaran doctor --json` prints."""
        return {
            "environment": self.environment.model_dump(mode="json"),
            "backends": {
                name: {"available": reason is None, "reason": reason, "hint": hint if reason else None}
                for name, (reason, hint) in self.backends.items()
            },
            "instructions": [
                {"name": row.name, "advertised": row.advertised, "executes": row.executes, "detail": row.detail}
                for row in self.instructions
            ],
            "gpu_warnings": list(self.gpu_warnings),
            "candidates": {row.name: row.describe for row in CANDIDATES.values()},
        }


def examine() -> Examination:
    backends = {row.name: Availability(row.available(), row.hint()) for row in BACKENDS.values()}
    return Examination(capture(), {**backends, "triton": _triton()}, probe(), _gpu_warnings())


def _gpu_warnings() -> tuple[str, ...]:
    if not driver_present():
        return (missing,) if (missing := card_without_driver()) else ()
    lacking = filter(None, [gpu_lacks()])
    eager = (f"eager PyTorch cannot be timed on the GPU: {reason}",) if (reason := torch_lacks_cuda()) else ()
    return (*dict.fromkeys((*lacking, *mismatches(installed_tensorrt(), driver_version(), spoken_cuda()))), *eager)


def _triton() -> Availability:
    try:
        installation.find()
    except UnavailableError as error:
        return Availability(error.message, error.hint)
    return Availability(None, "")
