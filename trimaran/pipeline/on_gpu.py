"""What the GPU itself tells of the contenders of a race: times by events, memory, clocks. Reports say it in notes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from trimaran.benchmarks.measure.gpu_state import GpuFacts
from trimaran.benchmarks.measure.gpu_times import gpu_facts
from trimaran.benchmarks.report.figures import decisive
from trimaran.benchmarks.report.report import REFERENCE
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Objective
from trimaran.core.errors import TrimaranError
from trimaran.core.spec import ShapeProfile
from trimaran.model_repository.stages import TEXT_STAGES
from trimaran.pipeline.outcomes import CandidateOutcome, Proven
from trimaran.pipeline.plan import DeployRun

# The engines that record events.
_WITH_EVENTS = ("tensorrt", "tensorrt_rtx")


def contenders_on_gpu(run: DeployRun, reference: Artifact, outcomes: Sequence[CandidateOutcome]) -> dict[str, GpuFacts]:
    """Of eager PyTorch and of every proven plan; empty on a CPU. One that fails here has been timed all the same."""
    plan = run.plan
    if plan.device.kind == "cpu":
        return {}
    plans = {row.candidate.name: row.artifact for row in outcomes if isinstance(row, Proven)}
    able = {name: artifact for name, artifact in plans.items() if artifact.backend in _WITH_EVENTS}
    eager = {REFERENCE: reference} if plan.eager_options else {}
    facts: dict[str, GpuFacts] = {}
    with plan.device.alone():
        for name, artifact in {**eager, **able}.items():
            with contextlib.suppress(TrimaranError):
                facts[name] = gpu_facts(
                    artifact,
                    plan.shapes,
                    threads=plan.config.threads,
                    device=plan.device.number,
                    options=plan.eager_options if name == REFERENCE else {},
                )
    return facts


def gpu_notes(
    facts: Mapping[str, GpuFacts], profile: ShapeProfile, objective: Objective, served: str | None
) -> tuple[str, ...]:
    """A sentence for each contender, and what the `served` one needs; None if another program serves it."""
    shape = str(decisive(profile, objective)[0])
    notes = [row.words(name, shape) for name, row in facts.items()]
    notes += [
        f"{name} runs without CUDA graphs, one kernel after another: {row.capture_failure}."
        for name, row in facts.items()
        if row.capture_failure
    ]
    if served is not None and served in facts:
        processes = TEXT_STAGES.count + TEXT_STAGES.spares
        needed = processes * facts[served].memory_bytes / 1e6
        notes.append(
            f"Served, {processes} processes open {served}: {needed:.0f} MB of GPU memory, and a CUDA context each."
        )
    return tuple(notes)
