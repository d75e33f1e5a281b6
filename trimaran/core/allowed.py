"""What a manifest or `serving.json` may set: these files may come from a stranger."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, Field

# The variables and options that trimaran itself writes. Others could load code (LD_PRELOAD) or write files (CACHE_DIR).
VARIABLES = frozenset({"ONEDNN_MAX_CPU_ISA"})
ENGINE_OPTIONS = frozenset(
    {
        # OpenVINO
        "DYNAMIC_QUANTIZATION_GROUP_SIZE",
        "CPU_RUNTIME_CACHE_CAPACITY",
        # TensorRT
        "runtime",
        "identity",
        "padding",
        "pad_side",
        "sequence_axes",
        "exact_shapes",
        "device",
        # eager PyTorch
        "attention",
        # a stage that calls its engine as another model
        "outputs",
    }
)
_VALUE = re.compile(r"[A-Za-z0-9_.,:-]{0,64}")


def _variables(variables: dict[str, str]) -> dict[str, str]:
    _require_known("environment variables", variables, VARIABLES)
    for name, value in variables.items():
        if not _VALUE.fullmatch(value):
            raise ValueError(f"{name} has a value that is not a plain word")
    return variables


def _engine_options(options: dict[str, Any]) -> dict[str, Any]:
    _require_known("engine options", options, ENGINE_OPTIONS)
    return options


def _require_known(what: str, names: dict[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(set(names) - known):
        raise ValueError(f"{what} that trimaran does not write: {', '.join(unknown)[:200]}")


def _inside(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"a path that leads out of its folder: {name[:200]!r}")
    return name


Variables = Annotated[dict[str, str], AfterValidator(_variables)]
StoredEngineOptions = Annotated[dict[str, Any], AfterValidator(_engine_options)]
# The path of a file in the folder of its manifest.
PathInside = Annotated[str, AfterValidator(_inside)]
# Part of the name of a module that is imported.
BackendName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Threads = Annotated[int, Field(ge=1, le=4096)]
