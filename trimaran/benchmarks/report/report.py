"""The facts of one run: raw samples, qualities and verdicts. Every other figure is computed from them."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from trimaran.benchmarks.measure.ceiling import Ceiling
from trimaran.benchmarks.measure.gpu_state import GpuFacts
from trimaran.benchmarks.measure.harness import HarnessCheck
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.scenarios.results import ScenarioResult, SuiteRun
from trimaran.core.choices import Level, Objective
from trimaran.core.environment import Environment
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Frozen, Precision, ShapeProfile
from trimaran.core.tasks import Gate
from trimaran.judging.judgement import Quality
from trimaran.judging.sensitivity import Sensitivity

OBJECTIVES: tuple[Objective, ...] = ("latency", "throughput")
REFERENCE = "eager"
EAGER = "eager PyTorch"
# 1: candidates and their measurements. 2: baselines, scenarios, the harness's own figures, the suite.
SCHEMA = 2
_SERIES = re.compile(r"\[\s*(-?\d[-\d.eE+,\s]*?)\s*\]")
# Verdicts of candidates that are not served: they broke a gate, could not win, or failed to run.
UNSERVED = ("rejected", "stopped", "failed")


class CandidateRow(Frozen):
    """What became of one candidate, of a baseline, or of the reference."""

    name: str
    backend: str
    precision: Precision
    verdict: Literal["reference", "baseline", "chosen", "passed", "rejected", "stopped", "failed"]
    # One sentence why it has this verdict.
    reason: str
    # The artifact's digest; None when none was made.
    artifact: str | None = None
    quality: Quality | None = None
    size_bytes: int | None = None
    peak_memory_bytes: int | None = None
    load_s: float | None = None
    # Variables that its process needs, such as a restricted instruction set.
    execution_environment: dict[str, str] = {}
    # How it runs, where the name does not say it: "eager fp32, attention sdpa".
    runs_as: str = ""
    # The search that decided which layers stay in float.
    sensitivity: Sensitivity | None = None
    # What the GPU told of it: times by events, memory, clocks.
    gpu: GpuFacts | None = None


class ReportVerdict(Frozen):
    """The result of the whole run, in three sentences."""

    # None when nothing keeps its gates.
    chosen: str | None
    # The chosen candidate compared with eager PyTorch.
    difference: Literal["faster", "slower", "no difference"] | None
    # What was chosen and how fast it is.
    speed: str
    # How true it is to eager, and what became of the others.
    truth: str
    # What the texts prove of it, with what confidence; empty in reports from before there were bounds.
    proof: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.speed, self.truth, self.proof)))


class Report(Persisted):
    """One run: what was asked, on which machine, every measurement, and the verdict."""

    schema_version: Literal[2] = Field(default=2, alias="schema")  # type: ignore[assignment]
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
    # What the CPU reaches on the model's bare matrix products, one for each shape.
    ceilings: tuple[Ceiling, ...] = ()
    suite: SuiteRun | None = None
    # How its sentences count speed-ups. A report without the field is older and was told by pooled samples.
    speed_figures: Literal["within rounds"] = "within rounds"
    # The cores that every candidate was pinned to; empty where nothing was pinned.
    cores: tuple[int, ...] = ()
    # Share of those cores that other processes used during the race.
    others_share: float | None = None

    def to_json(self) -> str:
        return json_of(self)

    @property
    def rows(self) -> tuple[CandidateRow, ...]:
        """Everything that was measured or judged: the reference, the baselines, the candidates."""
        return (self.reference, *self.baselines, *self.candidates)

    @property
    def reference_words(self) -> str:
        """What speed and answers are compared with."""
        return EAGER if self.reference.backend == "torch" else "the given fp32 graph"

    def row(self, name: str) -> CandidateRow:
        return next(row for row in self.rows if row.name == name)


def json_of(facts: Frozen) -> str:
    """One field a line, but all numbers of a series on one line: there are many raw samples."""
    text = facts.model_dump_json(by_alias=True, indent=1)
    return _SERIES.sub(lambda series: f"[{','.join(series[1].split())}]".replace(",,", ","), text) + "\n"
