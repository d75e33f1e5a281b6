"""`trimaran deploy --target`: prepares a model for GPUs that this machine does not have.

The graphs in TensorRT's types are judged on the CPU by the same gates as any candidate. The real tensorrt_rtx builds
each for every target that it knows, which needs no GPU, and the receipt of its kernels is checked. A roofline predicts
the times. `trimaran.judging.prepared` says what the prepared version holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.benchmarks.measure.products import MatrixProduct, products_of
from trimaran.benchmarks.measure.roofline import GPUS, KernelReceipt, expect
from trimaran.benchmarks.report.choice import broken_sentence
from trimaran.benchmarks.report.figures import decisive
from trimaran.benchmarks.report.render_prepared import prepared_json, prepared_markdown
from trimaran.core.artifact import Artifact, file_entries
from trimaran.core.backends import backend
from trimaran.core.config import DeployConfig
from trimaran.core.engine_identity import installed_version
from trimaran.core.errors import QualityError, TrimaranError, UnavailableError, UsageError
from trimaran.core.progress import Progress
from trimaran.core.samples import Shape
from trimaran.core.scratch import ScratchFolder
from trimaran.core.store import Store, link_or_copy, write_atomically
from trimaran.judging.prepared import (
    PREPARED_FILE,
    PREPARED_FOLDER,
    Prediction,
    Prepared,
    PreparedCandidate,
    TargetBuild,
    write_judging,
)
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.pipeline.eager import EagerAnswers, EagerInBackground
from trimaran.pipeline.exporting import export_planned
from trimaran.pipeline.line import make_golden_bundle
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, Proven, Rejected, Stopped
from trimaran.pipeline.plan import LANES, DeployPlan, DeployRun, plan_deployment, require_writable
from trimaran.pipeline.proving import make_and_prove_candidates
from trimaran.quantize.candidates import PREPARED, candidate
from trimaran.quantize.tensorrt.engine import Runtime, build_engine
from trimaran.quantize.tensorrt.engine_process import EngineOptions

BUILDER: Runtime = "tensorrt_rtx"
# How the official container serves a prepared graph before it was finished.
CONTAINER_BACKEND = "onnxruntime_tensorrt"
Products = Mapping[Shape, Sequence[MatrixProduct]]


@dataclass(frozen=True)
class PrepareResult:
    deployment: Deployment
    prepared: Prepared
    # By file ending.
    report_paths: Mapping[str, Path]

    def facts(self) -> dict[str, Any]:
        """What `trimaran deploy --target … --json` prints."""
        return {
            "repository": str(self.deployment.repository),
            "name": self.deployment.name,
            "version": self.deployment.version,
            **prepared_json(self.prepared),
            "report": {kind: str(path) for kind, path in self.report_paths.items()},
        }


@dataclass(frozen=True)
class _Built:
    """A proven graph, its plans by target, and what the report says of each target."""

    outcome: Proven
    plans: Mapping[str, Artifact]
    builds: tuple[TargetBuild, ...]

    @property
    def name(self) -> str:
        return self.outcome.candidate.name


def plan_preparation(config: DeployConfig) -> DeployPlan:
    """The plan of `deploy --target`. Refuses candidates that TensorRT cannot read, and a missing builder."""
    for name in config.candidates:
        if not candidate(name).for_tensorrt:
            raise UsageError(f"{name} is no graph for TensorRT.", hint=f"With --target: {', '.join(PREPARED)}.")
    if installed_version(BUILDER) is None:
        raise UnavailableError(f"{BUILDER} is not installed, which builds without a GPU.", hint=backend(BUILDER).hint())
    names = config.candidates or PREPARED
    return plan_deployment(config.model_copy(update={"candidates": names, "device": "cpu"}))


def prepare(config: DeployConfig, *, store: Store, progress: Progress, command: Sequence[str]) -> PrepareResult:
    """Raises QualityError when no graph keeps its gates and can be built: nothing is laid out then."""
    plan = plan_preparation(config)
    require_writable(plan.repository, plan.report)
    run = DeployRun(plan, store, progress)
    for note in plan.notes:
        progress.note(note)
    builds: list[Future[_Built]] = []
    # Graphs that are proven early are built while the INT8 search goes on.
    with EagerInBackground(run) as eager, ThreadPoolExecutor(LANES) as builders:
        reference, graph = export_planned(run, when_loaded=eager.start)
        products = {shape: products_of(graph.entry_path, shape) for shape in plan.shapes}

        def begin_build(outcome: Proven) -> None:
            builds.append(builders.submit(_build, run, outcome, products))

        outcomes = make_and_prove_candidates(run, graph, eager.answers, when_proven=begin_build)
    by_name = {row.name: row for row in (future.result() for future in builds)}
    built = [by_name[row.name] for row in plan.candidates if row.name in by_name]
    winner = _fastest(plan, built)
    prepared = _facts(plan, outcomes, built, winner, command)
    golden = make_golden_bundle(run, reference, winner.outcome, eager.requests()) if winner else None
    with ScratchFolder("prepared") as scratch:
        if winner is None or golden is None:
            paths = _write_report(prepared, plan.report)
            raise QualityError(prepared.headline, hint=f"The report is {paths['md']}. Try --fidelity balanced.")
        _fill(Path(scratch), plan, built, winner, eager.answers())
        files = file_entries(Path(scratch) / PREPARED_FOLDER)
        prepared = prepared.model_copy(update={"files": files})
        write_atomically(Path(scratch) / PREPARED_FILE, prepared.to_json())
        with progress.stage("model repository") as step:
            deployment = lay_out(
                _for_container(winner.outcome.artifact),
                repository=plan.repository,
                name=plan.name,
                rows=winner.outcome.quality.rows,
                threads=plan.config.threads,
                golden=golden,
                beside=Path(scratch),
            )
            step.outcome(f"{deployment.name} version {deployment.version}, prepared, in {deployment.repository}")
    return PrepareResult(deployment, prepared, _write_report(prepared, plan.report))


def _build(run: DeployRun, outcome: Proven, products: Products) -> _Built:
    """Build the graph for each target. A target that cannot be built is a fact of the report, and no error."""
    plans: dict[str, Artifact] = {}
    reasons: dict[str, str] = {}
    for target in run.plan.config.target:
        try:
            plans[target] = build_engine(
                outcome.artifact,
                EngineOptions(compute_capabilities=(target,)),
                runtime=BUILDER,
                store=run.store,
                progress=run.progress,
            )
        except TrimaranError as error:
            reasons[target] = f"{error.message} {error.hint}".strip()
    builder = f"{BUILDER} {installed_version(BUILDER)}"
    builds = []
    for target in run.plan.config.target:
        # Kernels of another target stand in where this builder does not know one.
        source = target if target in plans else next(reversed(plans), "")
        builds.append(
            TargetBuild(
                target=target,
                builder=builder,
                built=target in plans,
                reason=reasons.get(target, ""),
                receipt=plans[target].checks if target in plans else (),
                kernels_for=source,
                predictions=_predictions(target, plans[source], products) if source else (),
            )
        )
    return _Built(outcome, plans, tuple(builds))


def _predictions(target: str, plan: Artifact, products: Products) -> tuple[Prediction, ...]:
    """Empty for a compute capability of which no data sheet is known here."""
    receipt = KernelReceipt.of(plan.details["engine"]["kernels"][0])
    return tuple(
        Prediction(gpu=gpu.name, shape=shape, predicted_ms=1e3 * expect(needed, receipt, gpu).seconds)
        for gpu in GPUS
        if gpu.compute_capability == target
        for shape, needed in products.items()
    )


def _fastest(plan: DeployPlan, built: Sequence[_Built]) -> _Built | None:
    """The graph with the least predicted time at the decisive shapes, over all targets; without any, the smallest."""
    able = [row for row in built if row.plans]
    shapes = decisive(plan.profile, plan.config.objective)

    def rank(row: _Built) -> tuple[float, int]:
        times = [item.predicted_ms for build in row.builds for item in build.predictions if item.shape in shapes]
        mean = math.exp(sum(map(math.log, times)) / len(times)) if times else math.inf
        # Float rounding must not decide between graphs with the same kernels: the first of the plan is taken.
        return round(mean, 6), 0 if times else row.outcome.artifact.size_bytes

    return min(able, key=rank, default=None)


def _facts(
    plan: DeployPlan,
    outcomes: Sequence[CandidateOutcome],
    built: Sequence[_Built],
    winner: _Built | None,
    command: Sequence[str],
) -> Prepared:
    by_name = {row.name: row for row in built}
    rows = tuple(_row(outcome, by_name.get(outcome.candidate.name), winner) for outcome in outcomes)
    return Prepared(
        **plan.run_facts(command),
        targets=plan.config.target,
        candidates=rows,
        chosen=winner.name if winner else "",
        headline=_headline(plan, winner, rows),
        notes=plan.notes,
    )


def _row(outcome: CandidateOutcome, built: _Built | None, winner: _Built | None) -> PreparedCandidate:
    name, precision = outcome.candidate.name, outcome.candidate.precision
    match outcome:
        case Failed(error=error):
            return PreparedCandidate(name=name, precision=precision, verdict="failed", reason=str(error))
        case Stopped(reason=reason):
            return PreparedCandidate(name=name, precision=precision, verdict="failed", reason=reason)
        case Rejected(quality=quality, artifact=artifact):
            return PreparedCandidate(
                name=name,
                precision=precision,
                verdict="rejected",
                reason=f"Judged on the CPU: {broken_sentence(quality)}",
                quality=quality,
                size_bytes=artifact.size_bytes,
            )
    assert built is not None, "every proven graph was handed to the builder"
    facts: dict[str, Any] = {
        "name": name,
        "precision": precision,
        "quality": outcome.quality,
        "size_bytes": outcome.artifact.size_bytes,
        "builds": built.builds,
    }
    if not built.plans:
        reasons = dict.fromkeys(build.reason for build in built.builds)
        return PreparedCandidate(verdict="failed", reason=f"It could not be built: {' '.join(reasons)}", **facts)
    if built is winner:
        return PreparedCandidate(verdict="chosen", reason="Predicted to be fastest of those that keep gates.", **facts)
    return PreparedCandidate(verdict="passed", reason="It keeps every gate; predicted to be no faster.", **facts)


def _headline(plan: DeployPlan, winner: _Built | None, rows: Sequence[PreparedCandidate]) -> str:
    if winner is None:
        reasons = " ".join(f"{row.name}: {row.reason}" for row in rows)
        return f"No graph of {plan.ref.name} keeps every {plan.config.fidelity} gate and can be built. {reasons}"
    shape = decisive(plan.profile, plan.config.objective)[0]
    times = [
        f"{item.predicted_ms:.2f} ms on {item.gpu} ({build.target})"
        for build in winner.builds
        for item in build.predictions
        if item.shape == shape
    ]
    unbuilt = [build.target for build in winner.builds if not build.built]
    predicted = f"predicted, not measured: at least {', '.join(times)} at {shape}" if times else "without a prediction"
    missing = f" {BUILDER} has no builder for {', '.join(unbuilt)}: build there." if unbuilt else ""
    return (
        f"{winner.name} is prepared for {', '.join(plan.config.target)}: {predicted}. Over "
        f"{winner.outcome.quality.n} texts its graph keeps every {plan.config.fidelity} gate on the CPU; "
        f"the GPU's own kernels are still to be judged.{missing}"
    )


def _fill(folder: Path, plan: DeployPlan, built: Sequence[_Built], winner: _Built, eager: EagerAnswers) -> None:
    inner = folder / PREPARED_FOLDER
    (inner / "plans").mkdir(parents=True)
    write_judging(inner, plan.judging, eager.judging)
    for row in built:
        if row.plans:
            _link(row.outcome.artifact.directory, inner / "candidates" / row.name)
    for target, engine in winner.plans.items():
        _link(engine.directory, inner / "plans" / f"{winner.name}-{target}")


def _link(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            link_or_copy(path, target / path.relative_to(source))


def _for_container(artifact: Artifact) -> Artifact:
    """The graph as the official container runs it: ONNX Runtime with the TensorRT accelerator."""
    return artifact.model_copy(update={"backend": CONTAINER_BACKEND, "engine_options": {}}).at(artifact.directory)


def _write_report(prepared: Prepared, folder: Path) -> dict[str, Path]:
    texts = {"json": prepared.to_json(), "md": prepared_markdown(prepared)}
    paths = {kind: folder / f"prepared.{kind}" for kind in texts}
    for kind, text in texts.items():
        write_atomically(paths[kind], text)
    return paths
