"""The tests of the pipeline start servers too: a home for logs and state files, and the real Triton."""

from __future__ import annotations

from tests.serving.conftest import home, triton

__all__ = ["home", "triton"]
