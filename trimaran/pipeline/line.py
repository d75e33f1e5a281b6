"""The line: a trained model goes in; a proven, measured and served version of it comes out.

`deploy` reads as the stages in their order. What runs beside what is decided below it, in the stages: eager PyTorch
answers in the background (`eager.py`), and two candidates are made at once (`proving.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.benchmarks.measure.baselines import GPU_BASELINES
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_report, write_reports
from trimaran.benchmarks.report.summary import summary_json
from trimaran.core.artifact import Artifact
from trimaran.core.config import DeployConfig
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.errors import QualityError, TrimaranError, UnavailableError
from trimaran.core.progress import NumberedProgress, Progress, about
from trimaran.core.scratch import ScratchFolder
from trimaran.core.shadow_graph import fp32_ancestor
from trimaran.core.small_vectors import RANGES, recalls
from trimaran.core.store import Store
from trimaran.judging.final_answers import final_answers
from trimaran.judging.golden import Golden, make_golden
from trimaran.judging.judgement import UNPADDED
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.pipeline.duration import expected_stages
from trimaran.pipeline.eager import EagerInBackground, GoldenRequests
from trimaran.pipeline.exporting import export_planned
from trimaran.pipeline.live import load_where_served
from trimaran.pipeline.on_gpu import contenders_on_gpu
from trimaran.pipeline.outcomes import CandidateOutcome, Proven
from trimaran.pipeline.plan import DeployRun, plan_deployment, require_writable
from trimaran.pipeline.proving import make_and_prove_candidates
from trimaran.pipeline.race import QUICK, make_report, measure_candidates
from trimaran.pipeline.redeploy import made_before, remember_deployment
from trimaran.quantize.half.on_cpu import half_on_cpu
from trimaran.runtime.text import Array
from trimaran.serving.client.asking import example_command
from trimaran.serving.triton.golden_check import serve_and_verify

_SOONER = "what the store has of it is not made again."


@dataclass(frozen=True)
class DeployResult:
    """What `trimaran.deploy` made: the version in the repository, and the report that says why it was chosen.

    Examples:
        >>> deployed = trimaran.deploy("./my-model")
        >>> deployed.folder
        PosixPath('model_repository/my-model/1')
        >>> deployed.report_paths["html"]
        PosixPath('reports/my-model/report.html')
    """

    # Repository, name and version.
    deployment: Deployment
    report: Report
    # By file ending.
    report_paths: Mapping[str, Path]
    # Metrics of the answers over the wire; None if they were not checked.
    served: Mapping[str, float] | None
    # The same deployment was made before and is still in its place: nothing was done.
    unchanged: bool = False
    # host:port of the running servers of the repository, which have loaded it.
    servers: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the new version, which `trimaran.load` opens."""
        return self.deployment.repository / self.deployment.name / str(self.deployment.version)

    def facts(self) -> dict[str, Any]:
        """What `trimaran deploy --json` prints."""
        return {
            "repository": str(self.deployment.repository),
            "name": self.deployment.name,
            "version": self.deployment.version,
            **summary_json(self.report),
            "served": dict(self.served) if self.served else None,
            "unchanged": self.unchanged,
            "servers": list(self.servers),
            "report": {kind: str(path) for kind, path in self.report_paths.items()},
        }

    def example_query(self) -> str:
        """A command that asks the model what it is for, to be typed as it is printed."""
        parameters = read_config(self.deployment.repository / self.deployment.name / CONFIG_FILE).parameters
        mask_token = parameters.get("mask_token", "")
        return example_command(self.deployment.name, parameters["task"], mask_token=mask_token)


def deploy(config: DeployConfig, *, store: Store, progress: Progress, command: Sequence[str]) -> DeployResult:
    """Walks the whole line. Raises QualityError when no candidate keeps its gates: nothing is laid out then."""
    plan = plan_deployment(config)
    require_writable(plan.repository, plan.report)
    if not config.force and (record := made_before(plan, store)):
        paths = record.paths(plan.report)
        servers = _servers(record.deployment, progress)
        return DeployResult(
            record.deployment, read_report(plan.report), paths, record.served, unchanged=True, servers=servers
        )
    expected = expected_stages(plan)
    run = DeployRun(plan, store, NumberedProgress(progress, plan.stages, expected=expected))
    progress.note(f"Device: {plan.device}.")
    for note in plan.notes:
        progress.note(note)
    progress.note(f"{plan.stages} stages, {about(sum(stage.share_s for stage in expected.values()))}; {_SOONER}")
    with EagerInBackground(run) as eager:
        reference, graph = export_planned(run, when_loaded=eager.start)
        outcomes = make_and_prove_candidates(run, graph, eager.answers)
    run = run.with_note(eager.library())
    if UNPADDED in graph.details:
        run = run.with_note(graph.details[UNPADDED])
    if "embedding" in (vectors := eager.answers().judging):
        run = run.with_note(small_vectors_note(vectors["embedding"], graph))
    plan = run.plan
    effort = QUICK if config.quick else None
    baselines = GPU_BASELINES if plan.eager_options else ()
    measured = measure_candidates(run, reference, outcomes, effort=effort, baselines=baselines)
    on_gpu = contenders_on_gpu(run, reference, outcomes)
    report = make_report(plan, reference, outcomes, measured, command, baselines=baselines, on_gpu=on_gpu)
    paths = write_reports(report, plan.report)
    winner = chosen(outcomes, report, paths)
    golden = make_golden_bundle(run, reference, winner, eager.requests())
    served = check_served(run, winner, golden) if config.serve_check else None
    deployment = lay_out_winner(run, winner, golden, paths)
    # A busy machine left the choice open, and the report says "run again": the same command must then measure.
    if not measured.busy or sum(isinstance(outcome, Proven) for outcome in outcomes) == 1:
        remember_deployment(plan, store, deployment, served, paths)
    return DeployResult(deployment, report, paths, served, servers=_servers(deployment, progress))


def _servers(deployment: Deployment, progress: Progress) -> tuple[str, ...]:
    """Where it is served now. A server that does not load it, such as an unsigned one, does not undo the deployment."""
    try:
        return load_where_served(deployment)
    except TrimaranError as error:
        progress.note(f"The running server did not load {deployment.name}: {error}")
        return ()


def small_vectors_note(vectors: Array, graph: Artifact) -> str:
    """What small vectors cost, by eager PyTorch's vectors of the judging texts."""
    shares = recalls(vectors, graph.details.get(RANGES, ""))
    words = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    return f"Small vectors, ε-recall@10 among {len(vectors)} judging texts against float32 of full length: {words}."


def chosen(outcomes: Sequence[CandidateOutcome], report: Report, paths: Mapping[str, Path]) -> Proven:
    for outcome in outcomes:
        if isinstance(outcome, Proven) and outcome.candidate.name == report.verdict.chosen:
            return outcome
    raise QualityError(
        str(report.verdict), hint=f"The report is {paths['html']}. A looser level is --fidelity balanced."
    )


def make_golden_bundle(run: DeployRun, reference: Artifact, winner: Proven, requests: GoldenRequests) -> Golden:
    """Requests with eager PyTorch's final answers, and how far the winner's are from them. It goes with the model."""
    plan = run.plan
    with run.progress.stage("golden bundle") as step:
        golden = make_golden(
            task=plan.ref.task,
            model=plan.ref.name,
            reference=reference.digest,
            numbers=winner.artifact.signature.outputs[0].name,
            rows=requests.rows,
            wanted=requests.answers,
            proven=final_answers(
                half_on_cpu(winner.artifact, run.store),
                requests.rows,
                threads=plan.config.threads,
                policy=winner.quality.rows,
            ),
            gates=plan.gates,
        )
        step.outcome(f"{len(requests.rows)} requests with eager PyTorch's answers")
    return golden


def check_served(run: DeployRun, winner: Proven, golden: Golden) -> Mapping[str, float] | None:
    """Serves the winner from a scratch repository and compares its answers over the wire with the golden bundle.

    None if there is no Triton here.
    """
    plan = run.plan
    with run.progress.stage("served check") as step, ScratchFolder("serve") as scratch:
        repository = Path(scratch) / "model_repository"
        lay_out(
            winner.artifact,
            repository=repository,
            name=plan.name,
            rows=winner.quality.rows,
            threads=plan.config.threads,
            separate=False,
        )
        try:
            verified = serve_and_verify(repository, plan.name, golden)
        except UnavailableError as error:
            step.outcome(f"not done: {error}")
            return None
        step.outcome(", ".join(f"{name} {value:.3g}" for name, value in verified.metrics.items()))
    return verified.metrics


def lay_out_winner(run: DeployRun, winner: Proven, golden: Golden, paths: Mapping[str, Path]) -> Deployment:
    plan = run.plan
    with run.progress.stage("model repository") as step:
        deployment = lay_out(
            winner.artifact,
            repository=plan.repository,
            name=plan.name,
            rows=winner.quality.rows,
            threads=plan.config.threads,
            report=paths["json"],
            golden=golden,
            # The loopback server has no GPU backends. A plan runs in the text stage, which opens the GPU itself.
            separate=False,
            shadow=fp32_ancestor(winner.artifact, run.store) if plan.config.shadow_graph else None,
        )
        step.outcome(f"{deployment.name} version {deployment.version} in {deployment.repository}")
    return deployment
