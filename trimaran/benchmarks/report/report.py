"""The facts of one run: raw samples, qualities and verdicts. Every other figure is computed from them."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ConfigDict, Field

from trimaran.benchmarks.measure.ceiling import Ceiling
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.scenarios.results import HarnessCheck, ScenarioResult, SuiteRun
from trimaran.core.config import Objective
from trimaran.core.environment import Environment
from trimaran.core.spec import Frozen, Precision, ShapeProfile
from trimaran.core.tasks import Gate, Level
from trimaran.judging.judgement import Quality
from trimaran.judging.sensitivity import Sensitivity

OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
REFERENCE = "eager"
# 1: candidates and their measurements. 2: baselines, scenarios, the harness's own figures, the suite.
SCHEMA = 2
_SERIES = re.compile(r"\[\s*(-?\d[-\d.eE+,\s]*?)\s*\]")
# Verdicts of candidates that nobody would serve: broken gates, no chance to win, or broken down.
UNSERVED = ("rejected", "stopped", "failed")


class CandidateRow(Frozen):
    name: str
    backend: str
    precision: Precision
    verdict: Literal["reference", "baseline", "chosen", "passed", "rejected", "stopped", "failed"]
    reason: str
    artifact: str | None = None
    quality: Quality | None = None
    size_bytes: int | None = None
    peak_memory_bytes: int | None = None
    load_s: float | None = None
    execution_environment: dict[str, str] = {}
    # How it runs, where the name does not say it: "eager fp32, attention sdpa".
    runs_as: str = ""
    # Layer by layer, where a search decided which of them stay in float.
    sensitivity: Sensitivity | None = None


class ReportVerdict(Frozen):
    """Two sentences: what was chosen and how fast it is; how true it is and what became of the others."""

    chosen: str | None
    difference: Literal["faster", "slower", "no difference"] | None
    speed: str
    truth: str

    def __str__(self) -> str:
        return f"{self.speed} {self.truth}"


class Report(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[2] = Field(default=2, alias="schema")
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
    verdict: ReportVerdict
    notes: tuple[str, ...] = ()
    # Eager PyTorch in other settings (bf16, compiled): measured beside the others, never deployed.
    baselines: tuple[CandidateRow, ...] = ()
    scenarios: tuple[ScenarioResult, ...] = ()
    harness: HarnessCheck | None = None
    # What the CPU reaches on the model's bare matrix products, one a shape.
    ceilings: tuple[Ceiling, ...] = ()
    suite: SuiteRun | None = None
    # The cores that every contender was pinned to; empty where nothing was pinned.
    cores: tuple[int, ...] = ()
    # Share of those cores that other processes used during the race.
    others_share: float | None = None

    def to_json(self) -> str:
        return json_of(self)

    @property
    def rows(self) -> tuple[CandidateRow, ...]:
        """Everything that was measured or judged: the reference, the baselines, the candidates."""
        return (self.reference, *self.baselines, *self.candidates)

    def row(self, name: str) -> CandidateRow:
        return next(row for row in self.rows if row.name == name)


def json_of(facts: Frozen) -> str:
    """One field a line, but all numbers of a series on one: raw samples are many."""
    text = facts.model_dump_json(by_alias=True, indent=1)
    return _SERIES.sub(lambda found: f"[{','.join(found[1].split())}]".replace(",,", ","), text) + "\n"


def report_from_data(data: dict[str, Any]) -> Report:
    """A report of this schema or an older one. Raises ValueError when it is newer, or pydantic's error."""
    version = data.get("schema")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA:
        raise ValueError(f"report schema {version}; this version of trimaran reads schemas 1 to {SCHEMA}")
    # Schema 2 only adds fields, each of which has a default that says "not measured".
    return Report.model_validate({**data, "schema": SCHEMA})
