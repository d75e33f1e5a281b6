"""The straight line: a trained model goes in, a proven, measured and served one comes out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trimaran
from trimaran import isolation
from trimaran.artifact import Artifact, Recipe, load_artifact
from trimaran.backends import Array
from trimaran.benchmarks.choice import choose, failed_row, judged_row
from trimaran.benchmarks.quality import reference_answers
from trimaran.benchmarks.report import REFERENCE, CandidateRow, Objective, Quality, Report
from trimaran.benchmarks.report_files import write_reports
from trimaran.benchmarks.runner import Effort, Entry, Measured, measure
from trimaran.candidates import Candidate, candidate
from trimaran.config import DeployConfig, deploy_config
from trimaran.contenders import Contender, judge, outcome_words, try_candidates
from trimaran.environment import capture, tools
from trimaran.errors import QualityError, TrimaranError, UnavailableError, UsageError
from trimaran.export.to_onnx import model_ref_of
from trimaran.export.validate import ATOL
from trimaran.families import Exporter
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.planning import Plan, plan_deployment, require_writable
from trimaran.progress import Progress
from trimaran.serving.check import serve_and_verify
from trimaran.spec import ModelRef, ShapeProfile
from trimaran.store import Store
from trimaran.tasks import Level

EXPORT_DEADLINE_S = 1800.0


@dataclass(frozen=True)
class Deployed:
    deployment: Deployment
    report: Report
    report_paths: Mapping[str, Path]
    served: Mapping[str, float] | None


def deploy(config: DeployConfig, *, store: Store, progress: Progress, command: Sequence[str]) -> Deployed:
    """Walks the whole line. Nothing is laid out unless it was proven, and served here where Triton is there."""
    plan = plan_deployment(config)
    require_writable(plan.repository, plan.report)
    reference, graph = export_stage(plan.ref, plan.profile, store=store, progress=progress, exporter=config.exporter)
    answers = _eager_answers(plan, reference, progress)
    contenders = try_candidates(plan, graph, answers, store=store, progress=progress)
    measured = measure_stage(plan, reference, contenders, store=store, progress=progress)
    report = write_up(plan, reference, contenders, measured, command)
    paths = write_reports(report, plan.report)
    winner = next((c for c in contenders if c.row.name == report.verdict.chosen), None)
    if winner is None or winner.artifact is None or winner.quality is None:
        raise QualityError(
            str(report.verdict), hint=f"The report is {paths['html']}. A looser level is --fidelity balanced."
        )
    served = serve_stage(plan, winner.artifact, winner.quality, answers, progress)
    with progress.stage("model repository") as step:
        deployment = lay_out(
            winner.artifact,
            repository=plan.repository,
            name=plan.name,
            rows=winner.quality.rows,
            threads=config.threads,
            report=paths["json"],
        )
        step.outcome(f"{deployment.name} version {deployment.version} in {deployment.repository}")
    return Deployed(deployment, report, paths, served)


def export_stage(
    ref: ModelRef,
    profile: ShapeProfile,
    *,
    store: Store,
    progress: Progress,
    atol: float = ATOL,
    exporter: Exporter | None = None,
) -> tuple[Artifact, Artifact]:
    """Eager PyTorch as an artifact, and its computation as a proven ONNX graph."""
    with progress.stage("export") as step:
        folders = isolation.run(
            "trimaran.stages:export_model",
            deadline_s=EXPORT_DEADLINE_S,
            ref=ref.model_dump(mode="json"),
            profile=profile.model_dump(mode="json"),
            store=str(store.root),
            force=store.force,
            atol=atol,
            exporter=exporter,
        )
        reference, graph = (load_artifact(Path(folders[key])) for key in ("reference", "export"))
        step.outcome(f"{ref.family}, {ref.task}, {graph.checks[0]}")
    return reference, graph


def bench(
    references: Sequence[str],
    *,
    fidelity: Level,
    objective: Objective,
    threads: int | None,
    judging: Path | None,
    report: Path | None,
    store: Store,
    progress: Progress,
    command: Sequence[str],
) -> tuple[Report, Mapping[str, Path]]:
    """Judges and times artifacts of one model beside the eager PyTorch that they descend from."""
    artifacts = [store.open(name) for name in references]
    ancestors = {line[-1].digest: line[-1] for line in map(store.lineage, artifacts)}
    eager = next(iter(ancestors.values()))
    if len(ancestors) != 1 or eager.format != "torch":
        raise UsageError(
            "The artifacts do not descend from one model whose reference is in the store.",
            hint="Name artifacts of one `trimaran export`, and keep its store.",
        )
    ref = model_ref_of(eager)
    settings = {"model": ref.source, "fidelity": fidelity, "objective": objective, "threads": threads}
    plan = plan_deployment(
        deploy_config(
            {
                **settings,
                "task": ref.task,
                "family": ref.family,
                "batch": eager.profile.batch,
                "sequence": eager.profile.sequence,
                "judging": judging and str(judging),
                "report": report and str(report),
            }
        )
    )
    require_writable(plan.report)
    answers = _eager_answers(plan, eager, progress)
    contenders = []
    for artifact in artifacts:
        row = candidate(artifact.details["candidate"]) if "candidate" in artifact.details else _plain_row(artifact)
        with progress.stage(row.name) as step:
            try:
                quality = judge(plan, artifact, answers, store=store)
                contender = Contender(row, artifact, quality, environment=artifact.execution_environment)
            except TrimaranError as error:
                contender = Contender(row, failure=error)
            step.outcome(outcome_words(contender))
        contenders.append(contender)
    measured = measure_stage(plan, eager, contenders, store=store, progress=progress)
    found = write_up(plan, eager, contenders, measured, command)
    return found, write_reports(found, plan.report)


def measure_stage(
    plan: Plan, reference: Artifact, contenders: Sequence[Contender], *, store: Store, progress: Progress
) -> Measured:
    """Eager and every candidate that kept its gates, interleaved; earlier measurements of the same are reused."""
    entries = [Entry(REFERENCE, reference)]
    for contender in contenders:
        if contender.artifact and contender.quality and contender.quality.holds:
            entries.append(Entry(contender.row.name, contender.artifact, contender.quality.rows, contender.environment))
    effort = Effort()
    recipe = Recipe(
        step="measure",
        parents=tuple(entry.artifact.digest for entry in entries),
        parameters={
            "entries": [[entry.name, entry.rows, entry.environment] for entry in entries],
            "shapes": [str(shape) for shape in plan.shapes],
            "threads": plan.config.threads,
            "effort": effort.model_dump(mode="json"),
            "environment": capture().model_dump(mode="json"),
        },
        tools=tools("torch", "onnxruntime", "openvino"),
    )
    with progress.stage("measure") as step:
        measured, known = store.remember(
            recipe,
            Measured,
            lambda: measure(entries, plan.shapes, threads=plan.config.threads, effort=effort, step=step),
        )
        rounds = max((len(found.rounds) for found in measured.measurements), default=0)
        step.outcome(
            f"{'reused, ' if known else ''}{len(entries)} contenders, {len(plan.shapes)} shapes, "
            f"{rounds} interleaved rounds"
        )
    return measured


def write_up(
    plan: Plan, reference: Artifact, contenders: Sequence[Contender], measured: Measured, command: Sequence[str]
) -> Report:
    base = judged_row(REFERENCE, reference, None, outcome=measured.outcome(REFERENCE))
    measured_names = {outcome.candidate for outcome in measured.outcomes}
    choice = choose(
        [_row(contender, measured, measured_names) for contender in contenders],
        measured.measurements,
        reference=base,
        model=plan.ref.name,
        level=plan.config.fidelity,
        objective=plan.config.objective,
        profile=plan.profile,
    )
    return Report(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        trimaran=trimaran.__version__,
        model=plan.ref.name,
        task=plan.ref.task,
        family=plan.ref.family,
        level=plan.config.fidelity,
        gates=plan.gates,
        objective=plan.config.objective,
        threads=plan.config.threads,
        profile=plan.profile,
        environment=capture(),
        command=tuple(command),
        reference=base,
        candidates=choice.rows,
        measurements=measured.measurements,
        verdict=choice.verdict,
        notes=_restriction_notes(contenders),
    )


def serve_stage(
    plan: Plan, artifact: Artifact, quality: Quality, answers: Mapping[str, Array], progress: Progress
) -> Mapping[str, float] | None:
    """Serves the winner from a scratch repository and holds its answers over the wire against the same gates."""
    if not plan.config.serve_check:
        return None
    with progress.stage("served check") as step, tempfile.TemporaryDirectory(prefix="trimaran-serve-") as scratch:
        repository = Path(scratch) / "model_repository"
        lay_out(artifact, repository=repository, name=plan.name, rows=quality.rows, threads=plan.config.threads)
        try:
            metrics = serve_and_verify(repository, plan.name, plan.ref.task, plan.judging, answers, gates=plan.gates)
        except UnavailableError as error:
            step.outcome(f"not done: {error}")
            return None
        step.outcome(", ".join(f"{name} {value:.3g}" for name, value in metrics.items()))
    return metrics


def _eager_answers(plan: Plan, reference: Artifact, progress: Progress) -> dict[str, Array]:
    with progress.stage("eager answers") as step:
        answers = reference_answers(reference, plan.judging, threads=plan.config.threads)
        step.outcome(f"{len(plan.judging)} judging texts")
    return answers


def _plain_row(artifact: Artifact) -> Candidate:
    """An artifact that is no candidate of the table (an exported or fused graph), as a contender of its own name."""
    return Candidate(artifact.recipe.step, artifact.backend, artifact.precision, artifact.format, maker="")


def _row(contender: Contender, measured: Measured, names: set[str]) -> CandidateRow:
    if contender.artifact is None:
        reason = contender.failure or "It was not made."
        return failed_row(contender.row.name, contender.row.backend, contender.row.precision, reason)
    outcome = measured.outcome(contender.row.name) if contender.row.name in names else None
    return judged_row(
        contender.row.name,
        contender.artifact,
        contender.quality,
        outcome=outcome,
        environment=contender.environment,
    )


def _restriction_notes(contenders: Sequence[Contender]) -> tuple[str, ...]:
    return tuple(
        f"{contender.row.name} died of SIGILL with the instructions this CPU advertises; it was made, judged, measured "
        f"and will be served with {', '.join(f'{key}={value}' for key, value in contender.environment.items())}."
        for contender in contenders
        if contender.environment
    )
