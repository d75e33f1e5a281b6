"""What a maker of candidates is given beside its parent, and what it gives back."""

from __future__ import annotations

from typing import Any, Literal

from trimaran.core.artifact import Check
from trimaran.core.config import BUDGET_S
from trimaran.core.spec import DType, Frozen
from trimaran.core.tasks import Gate
from trimaran.runtime.text import Text


class Settings(Frozen):
    """`calibration` is empty for candidates that need none, so that their recipes do not depend on it.

    For candidates that are searched: the `gates` to keep as (metric, comparison, limit), and seconds to search in.
    `weight_levels` is the largest whole number of a weight: 63 where this CPU's products would saturate. With
    `half_outputs`, an FP16 graph gives its answers in FP16, too.
    """

    calibration: tuple[Text, ...] = ()
    threads: int = 1
    execution_environment: dict[str, str] = {}
    gates: tuple[tuple[str, Literal["<=", ">="], float], ...] = ()
    budget_s: float = BUDGET_S
    weight_levels: int = 127
    half_outputs: bool = False

    @property
    def limits(self) -> tuple[Gate, ...]:
        return tuple(Gate(*gate) for gate in self.gates)


class Made(Frozen):
    """`output_types` are those of outputs whose type is another than the parent's."""

    entry: str
    checks: tuple[Check, ...] = ()
    details: dict[str, Any] = {}
    output_types: dict[str, DType] = {}
