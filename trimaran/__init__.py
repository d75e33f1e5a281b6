"""Trained transformer encoders into production: exported, quantised, proven, measured and served by Triton."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimaran.serving.client import AsyncClient, Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]

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
    """The clients are imported when they are first used: `import trimaran` stays light."""
    if name in ("AsyncClient", "Client"):
        import trimaran.serving.client

        return getattr(trimaran.serving.client, name)
    raise AttributeError(f"module 'trimaran' has no attribute {name!r}")
