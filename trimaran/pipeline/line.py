"""The straight line: a trained model goes in, a proven, measured and served one comes out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.core import isolation
from trimaran.core.artifact import Artifact, load_artifact
from trimaran.core.backends import Array
from trimaran.core.config import DeployConfig
from trimaran.core.errors import QualityError, UnavailableError
from trimaran.core.families import Exporter
from trimaran.core.progress import Progress
from trimaran.core.spec import ModelRef, ShapeProfile
from trimaran.core.store import Store
from trimaran.core.tasks.task import RequestRow, WireTensors
from trimaran.export.validate import ATOL
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import Golden, golden_rows, make_golden
from trimaran.judging.judgement import Quality
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.pipeline.contenders import eager_on_data, try_candidates
from trimaran.pipeline.plan import Plan, plan_deployment, require_writable
from trimaran.pipeline.race import eager_answers, measure_stage, write_up
from trimaran.runtime.answers import Reader
from trimaran.serving.triton.golden_check import serve_and_verify

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
    for note in plan.notes:
        progress.note(note)
    with ThreadPoolExecutor(1) as beside:
        reference, graph, answers, requests = export_beside_eager(plan, beside, store=store, progress=progress)
        on_data = eager_on_data(plan, reference, progress)
        contenders = try_candidates(plan, graph, answers.result, store=store, progress=progress, on_data=on_data)
    measured = measure_stage(plan, reference, contenders, store=store, progress=progress)
    report = write_up(plan, reference, contenders, measured, command)
    paths = write_reports(report, plan.report)
    winner = next((c for c in contenders if c.row.name == report.verdict.chosen), None)
    if winner is None or winner.artifact is None or winner.quality is None:
        raise QualityError(
            str(report.verdict), hint=f"The report is {paths['html']}. A looser level is --fidelity balanced."
        )
    golden = golden_stage(plan, reference, winner.artifact, winner.quality, requests.result(), progress)
    served = serve_stage(plan, winner.artifact, winner.quality, golden, progress)
    with progress.stage("model repository") as step:
        deployment = lay_out(
            winner.artifact,
            repository=plan.repository,
            name=plan.name,
            rows=winner.quality.rows,
            threads=config.threads,
            report=paths["json"],
            golden=golden,
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
    with isolation.Worker() as child, progress.stage("export") as step:
        reference = _reference(child, ref, profile, store)
        graph = _graph(child, reference, store, atol=atol, exporter=exporter)
        step.outcome(f"{ref.family}, {ref.task}, {graph.checks[0]}")
    return reference, graph


class Requests(NamedTuple):
    """Requests that callers might make, and eager PyTorch's final answers to them."""

    rows: tuple[RequestRow, ...]
    answers: WireTensors


def export_beside_eager(
    plan: Plan, beside: Executor, *, store: Store, progress: Progress
) -> tuple[Artifact, Artifact, Future[Mapping[str, Array]], Future[Requests]]:
    """The same, and meanwhile eager PyTorch's answers to the judging texts, and then to requests: exporting keeps one
    core busy.
    """
    ref = plan.ref
    with isolation.Worker() as child, progress.stage("export") as step:
        reference = _reference(child, ref, plan.profile, store)
        answers: Future[Mapping[str, Array]] = beside.submit(
            eager_answers, plan, reference, progress, threads=plan.lane_threads
        )
        requests = beside.submit(_requests, plan, reference)
        graph = _graph(child, reference, store, atol=ATOL, exporter=plan.config.exporter, threads=plan.lane_threads)
        step.outcome(f"{ref.family}, {ref.task}, {graph.checks[0]}")
    return reference, graph, answers, requests


def _requests(plan: Plan, reference: Artifact) -> Requests:
    mask = reference.details.get("answers", {}).get("mask_id")
    reader = Reader(str(reference.directory / "tokenizer.json"))
    facts = {"mask_token": reader.token(mask) if mask is not None else ""}
    rows = golden_rows(plan.ref.task, plan.judging, facts, prompts=tuple(reference.tokenizer.prompts))
    return Requests(rows, final_answers(reference, rows, threads=plan.lane_threads))


def _reference(child: isolation.Worker, ref: ModelRef, profile: ShapeProfile, store: Store) -> Artifact:
    folder = child.call(
        "trimaran.pipeline.children:make_reference",
        deadline_s=EXPORT_DEADLINE_S,
        ref=ref.model_dump(mode="json"),
        profile=profile.model_dump(mode="json"),
        store=str(store.root),
        force=store.force,
    )
    return load_artifact(Path(folder))


def _graph(
    child: isolation.Worker,
    reference: Artifact,
    store: Store,
    *,
    atol: float,
    exporter: Exporter | None,
    threads: int | None = None,
) -> Artifact:
    folder = child.call(
        "trimaran.pipeline.children:export_reference",
        deadline_s=EXPORT_DEADLINE_S,
        eager=str(reference.directory),
        store=str(store.root),
        force=store.force,
        atol=atol,
        exporter=exporter,
        threads=threads,
    )
    return load_artifact(Path(folder))


def golden_stage(
    plan: Plan, reference: Artifact, artifact: Artifact, quality: Quality, requests: Requests, progress: Progress
) -> Golden:
    """Real requests with eager PyTorch's final answers, and what the winner keeps of them: it travels along."""
    with progress.stage("golden bundle") as step:
        golden = make_golden(
            task=plan.ref.task,
            model=plan.ref.name,
            reference=reference.digest,
            numbers=artifact.signature.outputs[0].name,
            rows=requests.rows,
            wanted=requests.answers,
            proven=final_answers(artifact, requests.rows, threads=plan.config.threads, policy=quality.rows),
            gates=plan.gates,
        )
        step.outcome(f"{len(requests.rows)} requests with eager PyTorch's answers")
    return golden


def serve_stage(
    plan: Plan, artifact: Artifact, quality: Quality, golden: Golden, progress: Progress
) -> Mapping[str, float] | None:
    """Serves the winner from a scratch repository and holds its answers over the wire against the bundle."""
    if not plan.config.serve_check:
        return None
    with progress.stage("served check") as step, tempfile.TemporaryDirectory(prefix="trimaran-serve-") as scratch:
        repository = Path(scratch) / "model_repository"
        lay_out(artifact, repository=repository, name=plan.name, rows=quality.rows, threads=plan.config.threads)
        try:
            found = serve_and_verify(repository, plan.name, golden)
        except UnavailableError as error:
            step.outcome(f"not done: {error}")
            return None
        step.outcome(", ".join(f"{name} {value:.3g}" for name, value in found.metrics.items()))
    return found.metrics
