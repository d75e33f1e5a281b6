"""The verdict on one artifact: how true it is to eager PyTorch, and how its rows must be run to stay so."""

from __future__ import annotations

from pydantic import ConfigDict

from trimaran.core.artifact import Check
from trimaran.core.choices import Rows
from trimaran.core.spec import Frozen

# Row policies, from the one that lets most rows share a call to the one that lets none.
WIDEST_FIRST: tuple[Rows, ...] = ("padded", "packed", "rounded", "equal-length", "alone")


class Quality(Frozen):
    """How true one artifact is to eager PyTorch, and how its rows must be run to stay so.

    `changes` is the worst change of one text's answer between running alone and each policy that was tried; the metric
    `batch_change` is that of the policy in `rows`, which is the one to serve with; `n_batched` texts showed it.
    """

    # A broken engine can answer NaN; JSON has no infinity, so it travels as a string.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    artifact: str
    task: str
    metrics: dict[str, float]
    rows: Rows
    changes: dict[Rows, float]
    neighbours: int
    checks: tuple[Check, ...]
    n: int
    n_batched: int
    texts: str
    peak_memory_bytes: int
    # 95 % intervals of the metrics that are means over texts.
    intervals: dict[str, tuple[float, float]] = {}

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.holds)
