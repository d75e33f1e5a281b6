"""Trained transformer encoders into production: exported, quantised, proven, measured and served by Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimaran.serving.client import AsyncClient, Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> Any:
    """The clients are imported when they are first used: `import trimaran` stays light."""
    if name in ("AsyncClient", "Client"):
        import trimaran.serving.client

        return getattr(trimaran.serving.client, name)
    raise AttributeError(f"module 'trimaran' has no attribute {name!r}")
