"""What travels of each task: one file a task, found by the task's name."""

from __future__ import annotations

import importlib
from typing import Any

from ..wire import ServedTask


def served_task(name: str) -> ServedTask:
    """The task's row, from `tasks/<name with underscores>.py`."""
    module: Any = importlib.import_module(f".{name.replace('-', '_')}", __name__)
    row: ServedTask = module.SERVED
    return row
