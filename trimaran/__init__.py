"""Trained transformer encoders into production: exported, quantised, proven, measured and served by Triton.

Examples:
    >>> import trimaran
    >>> deployed = trimaran.deploy("./my-model", fidelity="strict")
    >>> model = trimaran.load(deployed.folder)
    >>> vectors = model.encode(["one text", "another"])
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimaran.core.errors import TrimaranError
    from trimaran.pipeline.api import deploy, load, serve
    from trimaran.pipeline.line import DeployResult
    from trimaran.pipeline.local.embedding import EmbeddingModel
    from trimaran.pipeline.local.model import LocalModel
    from trimaran.serving.client import AsyncClient, Client
    from trimaran.serving.triton.server import Server

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "Client",
    "DeployResult",
    "EmbeddingModel",
    "LocalModel",
    "Server",
    "TrimaranError",
    "__version__",
    "deploy",
    "load",
    "serve",
]

_MODULES = {
    "AsyncClient": "trimaran.serving.client",
    "Client": "trimaran.serving.client",
    "DeployResult": "trimaran.pipeline.line",
    "EmbeddingModel": "trimaran.pipeline.local.embedding",
    "LocalModel": "trimaran.pipeline.local.model",
    "Server": "trimaran.serving.triton.server",
    "TrimaranError": "trimaran.core.errors",
    "deploy": "trimaran.pipeline.api",
    "load": "trimaran.pipeline.api",
    "serve": "trimaran.pipeline.api",
}

# Libraries that we import report their use to their makers unless they are told not to. Child processes inherit it.
for _variable, _value in {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}.items():
    os.environ.setdefault(_variable, _value)
# OpenVINO and NNCF have no such variable. They go on without this package where it cannot be imported.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used: `import trimaran` stays light."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'trimaran' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
