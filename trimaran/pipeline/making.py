"""Makes candidates in child processes, each under the first instruction set that runs on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core import isolation
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import backend
from trimaran.core.choices import BUDGET_S, Level
from trimaran.core.engine_identity import machine_identity
from trimaran.core.environment import usable_cores
from trimaran.core.errors import QualityError, TrimaranError, UsageError
from trimaran.core.progress import Progress, Step
from trimaran.core.store import Store
from trimaran.core.tasks import Gate, gates_for
from trimaran.judging.gate_check import GateCheck
from trimaran.judging.labelled import LabelledData, read_labelled
from trimaran.judging.quality import reference_answers
from trimaran.pipeline import children
from trimaran.pipeline.eager import ASSESS_DEADLINE_S
from trimaran.pipeline.exporting import open_graph
from trimaran.pipeline.lower_bounds import largest_weight
from trimaran.pipeline.plan import DeployRun, texts_for
from trimaran.quantize.candidates import Candidate, candidate
from trimaran.quantize.int8.search import MOST_STRETCH
from trimaran.quantize.tensorrt.engine import Runtime, build_engine
from trimaran.quantize.tensorrt.engine_process import EngineOptions
from trimaran.runtime.text import Text

MAKE_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class MakerInputs:
    """What a candidate is made with, beside its parent graph."""

    # Of a calibrated candidate.
    calibration: Sequence[Text]
    # Of a searched candidate: the gates to keep, and seconds to search in.
    gates: Sequence[Gate]
    budget_s: float
    threads: int
    # Of an FP16 graph: its answers in FP16 too.
    half_outputs: bool = False
    # The GPU of a candidate that runs on one.
    device: int = 0


def fuse(run: DeployRun, graph: Artifact) -> Artifact | TrimaranError:
    """The graph with the fusions of ONNX Runtime, or why there is none."""
    with run.progress.stage("optimize") as step:
        try:
            folder = isolation.run(
                children.fuse,
                MAKE_DEADLINE_S,
                parent=str(graph.directory),
                store=str(run.store.root),
                force=run.store.force,
                allow_partial=run.plan.config.allow_partial_fusion,
                threads=run.plan.lane_threads,
            )
        except TrimaranError as error:
            step.outcome(str(error))
            return error
        fused = load_artifact(Path(folder))
        step.outcome(", ".join(f"{name} {count}" for name, count in fused.details["fused_nodes"].items()))
    return fused


def make_candidate(
    row: Candidate, parent: Artifact, inputs: MakerInputs, *, restriction: Mapping[str, str], store: Store, step: Step
) -> Artifact:
    """Settings that a candidate does not read are left out, so that its recipe does not depend on them.

    A TensorRT plan is built from the graph of another candidate, which is made first.
    """
    if row.graph:
        graph = make_candidate(candidate(row.graph), parent, inputs, restriction=restriction, store=store, step=step)
        runtime: Runtime = "tensorrt" if row.backend == "tensorrt" else "tensorrt_rtx"
        here = machine_identity(runtime, inputs.device).compute_capabilities if runtime == "tensorrt_rtx" else ()
        return build_engine(
            graph,
            EngineOptions(compute_capabilities=here),
            runtime=runtime,
            device=inputs.device,
            store=store,
            progress=_InsideStage(step),
        )
    settings: dict[str, Any] = {
        "threads": inputs.threads,
        "execution_environment": restriction,
        "half_outputs": inputs.half_outputs,
    }
    if row.calibrated:
        settings["calibration"] = list(inputs.calibration)
    if row.searched:
        settings["gates"] = [[gate.metric, gate.comparison, gate.limit] for gate in inputs.gates]
        settings["budget_s"] = inputs.budget_s
        settings["weight_levels"] = largest_weight(row.backend, tuple(sorted(restriction.items())))
    if backend(row.backend).needs_driver:
        settings["device"] = inputs.device
    with isolation.Worker(environment=restriction, on_progress=step.advance) as worker:
        folder = worker.call(
            children.make_candidate,
            MAKE_DEADLINE_S + (MOST_STRETCH * inputs.budget_s if row.searched else 0.0),
            parent=str(parent.directory),
            name=row.name,
            store=str(store.root),
            force=store.force,
            settings=settings,
        )
    return load_artifact(Path(folder))


class _InsideStage:
    """The progress of a part of a stage: it moves that stage on, and opens none of its own."""

    def __init__(self, step: Step) -> None:
        self._step = step

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        yield self._step

    def note(self, text: str) -> None:
        self._step.advance(0, None, text)


def make_one_candidate(
    reference: str,
    name: str,
    calibration: Path | None,
    threads: int | None,
    *,
    fidelity: Level = "strict",
    gates: Mapping[str, float] | None = None,
    budget_s: float = BUDGET_S,
    data: Path | None = None,
    metric: str | None = None,
    half_outputs: bool = False,
    store: Store,
    progress: Progress,
) -> Artifact:
    """`trimaran quantize`: one candidate by itself.

    With labelled data, its answers are compared with its parent's. One that loses too much is made, but refused. Too
    few items prove nothing, which is said; nothing is laid out here.
    """
    if bool(data) != bool(metric):
        raise UsageError("--data and --metric belong together.", hint="Such as --data pairs.tsv --metric spearman.")
    row = candidate(name)
    parent = open_graph(reference, store=store, progress=progress)
    labelled = read_labelled(data, metric, task=parent.task, labels=parent.labels) if data and metric else None
    inputs = MakerInputs(
        calibration=texts_for(parent.task, "calibration", calibration),
        gates=gates_for(parent.task, fidelity, gates or {}),
        budget_s=budget_s,
        threads=threads or usable_cores(),
        half_outputs=half_outputs,
    )
    with progress.stage(row.name) as step:
        artifact, restriction = isolation.first_restriction_that_runs(
            lambda restriction: make_candidate(row, parent, inputs, restriction=restriction, store=store, step=step)
        )
        step.outcome("; ".join(map(str, artifact.checks)) + (f", {restriction}" if restriction else ""))
    if labelled:
        with progress.stage("labelled data") as step:
            check = _data_check(parent, artifact, labelled, threads=inputs.threads)
            step.outcome(str(check) + ("" if check.holds else f", {check.verdict} {check.needs_words}".rstrip()))
        if check.verdict == "broken":
            raise QualityError(
                f"{row.name} loses too much on {data}: {check}.",
                hint=f"It was made all the same: {artifact.directory}.",
            )
    return artifact


def _data_check(parent: Artifact, artifact: Artifact, data: LabelledData, *, threads: int) -> GateCheck:
    before, after = (
        reference_answers(side, data.texts, threads=threads, deadline_s=ASSESS_DEADLINE_S)
        for side in (parent, artifact)
    )
    return data.score(artifact, before, after).check()
