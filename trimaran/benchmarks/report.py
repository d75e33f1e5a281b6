"""What a run found out, as immutable facts: raw samples, qualities and verdicts; every other number follows."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from trimaran.artifact import Check
from trimaran.environment import Environment
from trimaran.spec import Frozen, Precision, Rows, ShapeProfile
from trimaran.tasks import Gate, Level

Objective = Literal["latency", "throughput"]
OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
REFERENCE = "eager"
WIDEST_FIRST: tuple[Rows, ...] = ("padded", "equal-length", "alone")


class Shape(Frozen):
    batch: int = Field(ge=1)
    sequence: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.batch}x{self.sequence}"


class Round(Frozen):
    """One turn of one candidate: its samples, and the calls before them that do not count."""

    samples_ns: tuple[int, ...]
    warmup_ns: tuple[int, ...] = ()


class Measurement(Frozen):
    """One candidate at one shape. A sample is one batch as it would be served: `alone` means batch calls of one."""

    candidate: str
    artifact: str
    shape: Shape
    threads: int
    rows: Rows
    rounds: tuple[Round, ...]

    @property
    def samples_ns(self) -> tuple[int, ...]:
        return tuple(sample for turn in self.rounds for sample in turn.samples_ns)

    @property
    def samples_by_round(self) -> tuple[tuple[int, ...], ...]:
        return tuple(turn.samples_ns for turn in self.rounds)


class Quality(Frozen):
    """How true one artifact is to eager PyTorch, and how its rows must be run to stay so.

    `changes` is the worst change of one text's answer between running alone and each policy; the metric
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

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.holds)


class CandidateRow(Frozen):
    name: str
    backend: str
    precision: Precision
    verdict: Literal["reference", "chosen", "passed", "rejected", "failed"]
    reason: str
    artifact: str | None = None
    quality: Quality | None = None
    size_bytes: int | None = None
    peak_memory_bytes: int | None = None
    load_s: float | None = None
    execution_environment: dict[str, str] = {}


class Verdict(Frozen):
    """Two sentences: what was chosen and how fast it is; how true it is and what became of the others."""

    chosen: str | None
    difference: Literal["faster", "slower", "no difference"] | None
    speed: str
    truth: str

    def __str__(self) -> str:
        return f"{self.speed} {self.truth}"


class Report(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    trimaran: str
    model: str
    task: str
    family: str
    level: Level
    gates: tuple[Gate, ...]
    objective: Objective
    threads: int
    profile: ShapeProfile
    environment: Environment
    command: tuple[str, ...]
    reference: CandidateRow
    candidates: tuple[CandidateRow, ...]
    measurements: tuple[Measurement, ...]
    verdict: Verdict
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True, indent=1) + "\n"

    def row(self, name: str) -> CandidateRow:
        return next(row for row in (self.reference, *self.candidates) if row.name == name)
