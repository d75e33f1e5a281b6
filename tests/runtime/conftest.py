from __future__ import annotations

from tests.quantize.conftest import world

__all__ = ["world"]
