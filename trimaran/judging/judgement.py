"""The verdict on one artifact: how true it is to eager PyTorch, and how its rows must be run to stay so."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict

from trimaran.core.artifact import Artifact, Check
from trimaran.core.choices import Rows
from trimaran.core.instructions import INTEGER, products_by
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.spec import Frozen
from trimaran.judging.gate_check import GateCheck

# Row policies, from the one that lets most rows share a call to the one that lets none.
WIDEST_FIRST: tuple[Rows, ...] = ("packed", "padded", "rounded", "equal-length", "alone")
# In an artifact's details: why its rows are never padded, in a sentence. Absent for every model that reads a mask.
UNPADDED = "unpadded"


class KindQuality(Frozen):
    """One kind of text: the values of the gated metrics on it."""

    kind: str
    n: int
    metrics: dict[str, float]
    # Metrics whose gate this kind breaks.
    broken: tuple[str, ...] = ()


def _with_verdict(check: Any) -> Any:
    """A plain check is decided by its value."""
    return check.model_dump() if type(check) is Check else check


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
    checks: tuple[Annotated[GateCheck, BeforeValidator(_with_verdict)], ...]
    n: int
    n_batched: int
    texts: str
    peak_memory_bytes: int
    # 95 % intervals of the metrics that are means over texts.
    intervals: dict[str, tuple[float, float]] = {}
    # One-sided bounds by metric, at the worse side of the value.
    bounds: dict[str, float] = {}
    # The error that each bound may have, and among how many lossy candidates 5 % were shared. None: the candidate
    # equals eager PyTorch up to float noise, so that its values decide.
    alpha: float | None = None
    judged: int = 1
    # Every kind of text, where the texts carry one.
    kinds: tuple[KindQuality, ...] = ()
    # What each text lost by each gated metric, in the order of the texts, and the version of the metrics.
    losses: dict[str, tuple[float, ...]] = {}
    metrics_version: int = 0
    # Whether the CPU that judged has instructions for INT8 products; None where that is not known.
    vnni: bool | None = None

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def broken(self) -> tuple[GateCheck, ...]:
        """Checks that are not proven; those whose limit is broken first."""
        failed = [check for check in self.checks if not check.holds]
        return tuple(sorted(failed, key=lambda check: check.verdict == "not proven"))


def counts_here(quality: Quality, artifact: Artifact) -> bool:
    """Whether a remembered judgement is of this artifact, by today's metrics and with this CPU's INT8 products."""
    if quality.artifact != artifact.digest or quality.metrics_version != METRICS_VERSION:
        return False
    here = products_by(artifact.execution_environment) == "vnni"
    return artifact.precision not in INTEGER or quality.vnni in (None, here)
