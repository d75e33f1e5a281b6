"""What a candidate can be at best, made up: as a row of the table names such functions, for a child to run."""

from __future__ import annotations

from trimaran.core.errors import ToolError


def slower(parent: str, rival: str, sequences: list[int], weight_levels: int) -> list[float]:
    return [1.3, 0.9][: len(sequences)]


def faster(parent: str, rival: str, sequences: list[int], weight_levels: int) -> list[float]:
    return [1.2, 0.7][: len(sequences)]


def broken(parent: str, rival: str, sequences: list[int], weight_levels: int) -> list[float]:
    raise ToolError("It has no linear layer.")


def much_slower(parent: str, rival: str, sequences: list[int], weight_levels: int) -> list[float]:
    return [2.0, 2.0][: len(sequences)]
