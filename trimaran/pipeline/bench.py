"""Benches artifacts that are already made, beside the eager PyTorch that they descend from."""

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
from trimaran.pipeline.plan import plan_deployment, require_writable
from trimaran.pipeline.proving import Contender, eager_on_data, judge, outcome_words
from trimaran.pipeline.race import eager_answers, measure_stage, write_up
from trimaran.quantize.candidates import Candidate, candidate
from trimaran.quantize.plain import onnx_copy


def bench_artifacts(
    references: Sequence[str],
    settings: Mapping[str, Any],
    *,
    store: Store,
    progress: Progress,
    command: Sequence[str],
) -> tuple[Report, Mapping[str, Path]]:
    """Judges and times artifacts of one model. `settings` are keys of the deployment's config, without the model."""
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
                **settings,
                "model": ref.source,
                "task": ref.task,
                "family": ref.family,
                "batch": eager.profile.batch,
                "sequence": eager.profile.sequence,
            }
        )
    )
    require_writable(plan.report)
    answers = eager_answers(plan, eager, progress)
    on_data = eager_on_data(plan, eager, progress)
    contenders = []
    for artifact in artifacts:
        row = candidate(artifact.details["candidate"]) if "candidate" in artifact.details else _plain_row(artifact)
        with progress.stage(row.name) as step:
            try:
                quality = judge(plan, artifact, answers, store=store, on_data=on_data)
                contender = Contender(row, artifact, quality, environment=artifact.execution_environment)
            except TrimaranError as error:
                contender = Contender(row, failure=error)
            step.outcome(outcome_words(contender))
        contenders.append(contender)
    measured = measure_stage(plan, eager, contenders, store=store, progress=progress)
    found = write_up(plan, eager, contenders, measured, command)
    return found, write_reports(found, plan.report)


def _plain_row(artifact: Artifact) -> Candidate:
    """An artifact that is no candidate of the table (an exported or fused graph), as a contender of its own name."""
    return Candidate(artifact.recipe.step, artifact.backend, artifact.precision, artifact.format, onnx_copy)
