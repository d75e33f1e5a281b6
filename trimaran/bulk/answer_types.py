"""How each task's answers stand in a Parquet column: the same type in every part, empty parts included."""

from __future__ import annotations

from typing import Any

from trimaran.core.errors import UsageError
from trimaran.core.tasks import task


def answer_type(name: str) -> Any:
    column = task(name).column
    if column is None:
        raise UsageError(f"{name} answers have no column type.", hint="Use --format jsonl.")
    return column()
