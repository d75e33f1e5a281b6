"""What a measurement is made of: the shape of a batch, and the samples of one turn."""

from __future__ import annotations

from pydantic import Field

from trimaran.core.spec import Frozen


class Shape(Frozen):
    batch: int = Field(ge=1)
    sequence: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.batch}x{self.sequence}"


class Round(Frozen):
    """One turn of one candidate: its samples, and the calls before them that do not count."""

    samples_ns: tuple[int, ...]
    warmup_ns: tuple[int, ...] = ()
    # Time that its threads waited for a CPU, over its own time; None where the system does not tell.
    delayed: float | None = None
    # A fixed computation right before and right after it, the slower of both.
    yardstick_ns: int | None = None
