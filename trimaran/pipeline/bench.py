"""Judges and times artifacts that are already made, beside the eager PyTorch model that they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.core.artifact import Artifact
from trimaran.core.config import deploy_config
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.progress import Progress
from trimaran.core.store import Store
from trimaran.export.reference import model_ref_of
from trimaran.pipeline.eager import EagerAnswers, eager_answers
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, judged, outcome_words
from trimaran.pipeline.plan import DeployRun, plan_deployment, require_writable
from trimaran.pipeline.proving import judge
from trimaran.pipeline.race import make_report, measure_candidates
from trimaran.quantize.candidates import Contestant

# The other keys of the config say how candidates are made, and these are made already.
_RACE_KEYS = ("fidelity", "objective", "threads", "judging", "data", "metric", "report", "wait_quiet", "busy_ok")


def bench_artifacts(
    references: Sequence[str],
    settings: Mapping[str, Any],
    *,
    store: Store,
    progress: Progress,
    command: Sequence[str],
) -> tuple[Report, Mapping[str, Path]]:
    """All artifacts must be of one model. `settings` are keys of a deployment's config."""
    artifacts = [store.open(name) for name in references]
    ancestors = {line[-1].digest: line[-1] for line in map(store.lineage, artifacts)}
    eager = next(iter(ancestors.values()))
    if len(ancestors) != 1 or eager.format != "torch":
        raise UsageError(
            "The artifacts do not descend from one model whose reference is in the store.",
            hint="Name artifacts of one `trimaran export`, and keep its store.",
        )
    ref = model_ref_of(eager)
    plan = plan_deployment(
        deploy_config(
            {
                **{key: value for key, value in settings.items() if key in _RACE_KEYS},
                "model": ref.source,
                "task": ref.task,
                "family": ref.family,
                "batch": eager.profile.batch,
                "sequence": eager.profile.sequence,
            }
        )
    )
    require_writable(plan.report)
    run = DeployRun(plan, store, progress)
    answers = eager_answers(run, eager)
    outcomes = [_judged(run, artifact, answers) for artifact in artifacts]
    measured = measure_candidates(run, eager, outcomes)
    report = make_report(plan, eager, outcomes, measured, command)
    return report, write_reports(report, plan.report)


def _judged(run: DeployRun, artifact: Artifact, answers: EagerAnswers) -> CandidateOutcome:
    # An exported or fused graph is no candidate of the table: it competes under the name of its step.
    name = str(artifact.details.get("candidate", artifact.recipe.step))
    contestant = Contestant(name, artifact.backend, artifact.precision)
    outcome: CandidateOutcome
    with run.progress.stage(name) as step:
        try:
            outcome = judged(contestant, artifact, judge(run, artifact, answers), artifact.execution_environment)
        except TrimaranError as error:
            outcome = Failed(contestant, error)
        step.outcome(outcome_words(outcome))
    return outcome
