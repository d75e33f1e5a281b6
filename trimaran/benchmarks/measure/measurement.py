"""One candidate timed at one shape: the raw samples that every other figure of a report is computed from."""

from __future__ import annotations

from trimaran.core.choices import Rows
from trimaran.core.samples import Round, Shape
from trimaran.core.spec import Frozen


class Measurement(Frozen):
    """A sample is one batch as it would be served: with `alone`, as many calls of one row."""

    candidate: str
    # Digest of the artifact that was timed.
    artifact: str
    shape: Shape
    threads: int
    # How rows may share a call.
    rows: Rows
    rounds: tuple[Round, ...]

    @property
    def samples_ns(self) -> tuple[int, ...]:
        return tuple(sample for turn in self.rounds for sample in turn.samples_ns)

    @property
    def samples_by_round(self) -> tuple[tuple[int, ...], ...]:
        return tuple(turn.samples_ns for turn in self.rounds)
