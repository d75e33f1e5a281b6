"""Examines this machine: which backends run, and which advertised instruction sets really execute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from trimaran.core.backends import BACKENDS
from trimaran.core.environment import Environment, capture, driver_present
from trimaran.core.errors import UnavailableError
from trimaran.core.gpu_release import installed_tensorrt, mismatches
from trimaran.core.instructions import Probed, probe
from trimaran.quantize.candidates import CANDIDATES
from trimaran.runtime.cuda_driver import driver_version, gpu_names
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
    # What a machine with a GPU lacks to serve a plan in the official container; empty without a driver.
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
        return ()
    visible = gpu_names()
    none = () if visible else ("the driver shows no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES",)
    return (*none, *mismatches(installed_tensorrt(), driver_version()))


def _triton() -> Availability:
    try:
        installation.find()
    except UnavailableError as error:
        return Availability(error.message, error.hint)
    return Availability(None, "")
