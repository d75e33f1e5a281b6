"""What a maker of candidates is given beside its parent, and what it gives back."""

from __future__ import annotations

from typing import Any, Literal

from trimaran.core.artifact import Check
from trimaran.core.choices import BUDGET_S
from trimaran.core.spec import DType, Frozen
from trimaran.core.tasks import Gate
from trimaran.runtime.text import Text


class MakerSettings(Frozen):
    """How to make a candidate. It crosses a process border as JSON."""

    # Empty for candidates that need no texts, so that their recipes do not depend on them.
    calibration: tuple[Text, ...] = ()
    threads: int = 1
    # Variables that the candidate's process needs, such as a limit on the CPU's instructions.
    execution_environment: dict[str, str] = {}
    # For searched candidates: the gates to keep, as (metric, comparison, limit), and how long to search.
    gates: tuple[tuple[str, Literal["<=", ">="], float], ...] = ()
    budget_s: float = BUDGET_S
    # The largest whole number of a weight: 63 where this CPU's products would saturate with 127.
    weight_levels: int = 127
    # The GPU of a candidate that runs on one.
    device: int = 0
    # Of an FP16 graph: give the answers in FP16, too.
    half_outputs: bool = False

    @property
    def limits(self) -> tuple[Gate, ...]:
        return tuple(Gate(*gate) for gate in self.gates)


class MadeCandidate(Frozen):
    """What a maker wrote into its folder."""

    # The file that an engine opens.
    entry: str
    checks: tuple[Check, ...] = ()
    details: dict[str, Any] = {}
    # Only of outputs whose type is not the parent's.
    output_types: dict[str, DType] = {}
