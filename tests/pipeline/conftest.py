"""The tests of the pipeline start servers too: a home for logs and state files."""

from __future__ import annotations

from tests.serving.conftest import home

__all__ = ["home"]
