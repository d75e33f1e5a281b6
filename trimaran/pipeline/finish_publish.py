"""Publishes the plan that `trimaran finish` chose: served once for a check, then laid out as the next version.

A version keeps the plans of unlike machines side by side. The version itself holds
the plan of the machine that published it. `plans/IDENTITY/` holds the plan of each other machine. The text stage opens
the plan of the machine that it starts on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.core.artifact import MANIFEST, Artifact
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config, write_config
from trimaran.core.errors import UnavailableError
from trimaran.core.model_config import ON_DEMAND
from trimaran.core.progress import Progress
from trimaran.core.repository import model_folders, stages_of, versions_of
from trimaran.core.scratch import ScratchFolder
from trimaran.core.serving_json import read_serving, write_serving
from trimaran.core.store import link_or_copy, write_atomically
from trimaran.judging.final_answers import final_answers
from trimaran.judging.finished import FINISHED_FILE, Finished, finished_versions
from trimaran.judging.golden import GOLDEN_FILE, Golden, make_golden, read_golden
from trimaran.judging.judgement import Quality
from trimaran.judging.prepared import Prepared
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.model_repository.versions import model_versions, pin, remember
from trimaran.runtime.tensorrt_engine import PLAN_FOLDERS
from trimaran.serving.triton import installation
from trimaran.serving.triton.golden_check import serve_and_verify

_PLAN = "model.plan"


@dataclass(frozen=True)
class PreparedVersion:
    """A version that `deploy --target` prepared."""

    model: Path
    version: int
    prepared: Prepared

    @property
    def folder(self) -> Path:
        return self.model / str(self.version)


@dataclass(frozen=True)
class JudgedPlan:
    """A plan that keeps its gates on this GPU."""

    name: str
    artifact: Artifact
    quality: Quality


def publish_plan(
    source: PreparedVersion,
    winner: JudgedPlan,
    finished: Finished,
    *,
    separate: bool,
    threads: int,
    progress: Progress,
) -> Deployment:
    """`separate` lays the plan out for Triton's own backend, which only the official container has.

    There it is also checked through that backend; elsewhere through the stage that stands in for it.
    """
    golden = _golden(source, winner, threads)
    settings: dict[str, Any] = {
        "rows": winner.quality.rows,
        "threads": threads,
        "separate": None if separate else False,
    }
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(ScratchFolder("finish")))
        trial = scratch / "trial"
        lay_out(winner.artifact, repository=trial, name=source.model.name, **settings)
        if not installation.has_backend("tensorrt"):
            _without_gpu_instances(trial)
        _check_served(source, trial, golden, progress)
        beside = scratch / "beside"
        write_atomically(beside / FINISHED_FILE, finished.to_json())
        if not separate:
            _keep_other_plans(source, finished, beside)
        step = stack.enter_context(progress.stage("model repository"))
        deployment = lay_out(
            winner.artifact,
            repository=source.model.parent,
            name=source.model.name,
            golden=golden,
            beside=beside,
            **settings,
        )
        live = _take_over(source, deployment.version, finished)
        step.outcome(f"{deployment.name} version {deployment.version}{', served' if live else ''}")
    return deployment


def _keep_other_plans(source: PreparedVersion, finished: Finished, beside: Path) -> None:
    """Take along the newest plan of every other machine that finished the same preparation."""
    kept = {finished.folder}
    for _, folder, other in finished_versions(source.model, finished.prepared_sha256):
        if other.folder in kept or not (folder / _PLAN).is_file():
            continue
        kept.add(other.folder)
        target = beside / PLAN_FOLDERS / other.folder
        for name in (_PLAN, MANIFEST, FINISHED_FILE):
            link_or_copy(folder / name, target / name)
        entry = f"{PLAN_FOLDERS}/{other.folder}/{_PLAN}"
        write_serving(target, read_serving(folder).model_copy(update={"entry": entry}))


def _take_over(source: PreparedVersion, version: int, finished: Finished) -> bool:
    """Serve the plan in place of the prepared version, which was never proven, or of another machine's plan.

    Any other version stays served. The graph that the prepared version calls is no longer loaded, but can be asked for.
    A rollback restores both.
    """
    repository, name = source.model.parent, source.model.name
    served = model_versions(repository, name).served
    replaced = {source.version, *(row[0] for row in finished_versions(source.model, finished.prepared_sha256))}
    if len(served) != 1 or served[0] not in replaced:
        return False
    for stage in stages_of(repository, name):
        if version not in versions_of(stage.folder):
            config = read_config(stage.folder / CONFIG_FILE)
            parameters = {**config.parameters, "load": ON_DEMAND}
            write_config(stage.folder / CONFIG_FILE, config.model_copy(update={"parameters": parameters}))
    pin(repository, name, version)
    remember(repository, name, served, version)
    return True


def _golden(source: PreparedVersion, winner: JudgedPlan, threads: int) -> Golden:
    """The golden requests that travelled along, with what this plan keeps to on them."""
    before = read_golden(source.folder / GOLDEN_FILE)
    return make_golden(
        task=before.task,
        model=before.model,
        reference=before.reference,
        numbers=before.numbers,
        rows=before.rows,
        wanted=before.tensors,
        proven=final_answers(winner.artifact, before.rows, threads=threads, policy=winner.quality.rows),
        gates=source.prepared.gates,
    )


def _without_gpu_instances(repository: Path) -> None:
    """Let a Triton without a `tensorrt` backend, as nvidia-pytriton's, serve a plan that is a model of its own.

    It may know no GPU, and then refuses `KIND_GPU`. The stage that stands in for the backend opens the GPU by itself.
    """
    for folder in model_folders(repository):
        config = read_config(folder / CONFIG_FILE)
        if config.instance_group is not None and config.instance_group.kind == "KIND_GPU":
            group = config.instance_group.model_copy(update={"kind": "KIND_CPU", "gpus": ()})
            write_config(folder / CONFIG_FILE, config.model_copy(update={"instance_group": group}))


def _check_served(source: PreparedVersion, repository: Path, golden: Golden, progress: Progress) -> None:
    """Serve the plan from a scratch repository and compare its answers over the wire, where there is a Triton."""
    with progress.stage("served check") as step:
        try:
            verified = serve_and_verify(repository, source.model.name, golden)
        except UnavailableError as error:
            step.outcome(f"not done: {error}")
            return
        step.outcome(", ".join(f"{name} {value:.3g}" for name, value in verified.metrics.items()))
