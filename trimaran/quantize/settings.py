"""What a maker of candidates is given beside its parent, and what it gives back."""

from __future__ import annotations

from typing import Any

from trimaran.artifact import Check
from trimaran.spec import Frozen


class Settings(Frozen):
    """`calibration` is empty for candidates that need none, so that their recipes do not depend on it."""

    calibration: tuple[str, ...] = ()
    threads: int = 1
    execution_environment: dict[str, str] = {}


class Made(Frozen):
    entry: str
    checks: tuple[Check, ...] = ()
    details: dict[str, Any] = {}
