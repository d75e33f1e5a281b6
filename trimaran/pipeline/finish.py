"""`trimaran finish`: makes a prepared version a proven plan, on the machine with the GPU that will serve it.

Every prepared graph is built by the TensorRT that is here, judged by the texts and answers that travelled along, and
timed. The fastest that keeps its gates becomes the next version. Artifacts and versions appear by one rename each, so a
run that was killed leaves nothing half-made, and the next run reuses the plans that it finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trimaran
from trimaran.benchmarks.measure.gpu_state import GpuFacts
from trimaran.benchmarks.measure.gpu_times import gpu_facts
from trimaran.benchmarks.measure.runner import Effort, Measured, RaceEntry, measure
from trimaran.benchmarks.report.choice import broken_sentence
from trimaran.benchmarks.report.figures import decisive, grid
from trimaran.benchmarks.report.report import REFERENCE
from trimaran.core.artifact import load_artifact, sha256_of
from trimaran.core.corpus import kinds_of
from trimaran.core.devices import builds_by_trtexec, choose_device
from trimaran.core.engine_identity import EngineIdentity, machine_identity
from trimaran.core.environment import capture
from trimaran.core.errors import QualityError, TrimaranError, UsageError
from trimaran.core.gpu_lock import exclusive_gpu
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Progress
from trimaran.core.repository import model_folders, versions_of
from trimaran.core.store import Store
from trimaran.judging.finished import Finished, FinishedCandidate, finished_versions
from trimaran.judging.prepared import (
    PREPARED_FILE,
    PREPARED_FOLDER,
    Prepared,
    PreparedCandidate,
    read_judging,
    read_prepared,
    verify_prepared,
)
from trimaran.judging.quality import assess
from trimaran.judging.stats import median
from trimaran.pipeline.finish_choice import choose_plan
from trimaran.pipeline.finish_eager import Eager, eager_on_gpu
from trimaran.pipeline.finish_publish import JudgedPlan, PreparedVersion, publish_plan
from trimaran.pipeline.on_gpu import gpu_notes
from trimaran.pipeline.race import QUICK
from trimaran.quantize.tensorrt.engine import DEADLINE_S, build_engine
from trimaran.quantize.tensorrt.engine_process import EngineOptions

_JUDGE_DEADLINE_S = 900.0
_BY_TRTEXEC = (
    "Python has no TensorRT here. So trtexec built the plans, and Triton's own tensorrt backend ran them. The times "
    "are those of calls to its gRPC port."
)


@dataclass(frozen=True)
class FinishOptions:
    # `cuda` or `cuda:N`.
    device: str = "cuda"
    # Lay the plan out for Triton's own backend instead of inside the text stage.
    separate: bool = False
    threads: int = 1
    # The builder's scratch memory, and how long one plan may take.
    workspace_bytes: int | None = None
    deadline_s: float = DEADLINE_S
    # A short race.
    quick: bool = False
    # The trained model, to time eager PyTorch beside the plans where torch has CUDA.
    model: str | None = None


@dataclass(frozen=True)
class FinishResult:
    name: str
    version: int
    finished: Finished
    # An earlier run on such a machine had done it.
    known: bool

    def facts(self) -> dict[str, Any]:
        """What `trimaran finish --json` prints of one model."""
        plain = self.finished.model_dump(mode="json", exclude={"environment", "schema_version"})
        return {**plain, "name": self.name, "version": self.version, "known": self.known}


@dataclass(frozen=True)
class _Work:
    """One prepared version under way."""

    source: PreparedVersion
    identity: EngineIdentity
    options: FinishOptions
    device: int
    store: Store
    progress: Progress

    @property
    def prepared(self) -> Prepared:
        return self.source.prepared


def prepared_models(repository: Path, name: str | None = None) -> tuple[Path, ...]:
    """The models of which some version is prepared; of the named one only."""
    return tuple(
        model for model in model_folders(repository) if name in (None, model.name) and _prepared_version(model)
    )


def finish_prepared(
    repository: Path,
    name: str | None,
    options: FinishOptions,
    *,
    store: Store,
    progress: Progress,
    command: Sequence[str],
) -> tuple[FinishResult, ...]:
    """Finish every prepared model, or the named one. Raises UnavailableError where there is no GPU to do it on."""
    models = prepared_models(repository, name)
    if not models:
        what = name or "any prepared model"
        raise UsageError(f"{repository} does not hold {what}.", hint="`trimaran deploy --target` prepares one.")
    device = choose_device(options.device, by_trtexec=True)
    if builds_by_trtexec():
        # Only Triton's own backend can open a plan here.
        options = replace(options, separate=True)
    identity = machine_identity("tensorrt", device.number)
    results = []
    for model in models:
        version = _prepared_version(model)
        source = PreparedVersion(model, version, read_prepared(model / str(version)))
        work = _Work(source, identity, options, device.number, store, progress)
        results.append(_known(work) or _finish(work, command))
    return tuple(results)


def _prepared_version(model: Path) -> int:
    """The newest; 0 where none is prepared."""
    return max((n for n in versions_of(model) if (model / str(n) / PREPARED_FILE).is_file()), default=0)


def _known(work: _Work) -> FinishResult | None:
    """What an earlier run made of the same preparation, on a machine like this one."""
    digest = sha256_of(work.source.folder / PREPARED_FILE)
    for version, _, finished in finished_versions(work.source.model, digest):
        if finished.folder == work.identity.folder:
            return FinishResult(work.source.model.name, version, finished, known=True)
    return None


def _finish(work: _Work, command: Sequence[str]) -> FinishResult:
    verify_prepared(work.source.folder, work.prepared)
    rows, plans = [], []
    for candidate in work.prepared.candidates:
        if candidate.holds:
            row, plan = _build_and_judge(work, candidate)
            rows.append(row)
            plans += [plan] if plan else []
    eager = eager_on_gpu(work.options.model, work.prepared.profile, work.device, store=work.store)
    measured = _race(work, plans, eager) if plans else None
    on_gpu = _gpu_facts(work, plans)
    rows = [row.model_copy(update={"measured_ms": _medians(measured, row.name)}) for row in rows]
    rows = [
        row.model_copy(update={"gpu_ms": facts.times_ms, "gpu_memory_bytes": facts.memory_bytes})
        if (facts := on_gpu.get(row.name))
        else row
        for row in rows
    ]
    deciding = decisive(work.prepared.profile, work.prepared.objective)
    chosen, rows = choose_plan(rows, measured.measurements if measured else (), deciding)
    finished = Finished(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        trimaran=trimaran.__version__,
        model=work.prepared.model,
        prepared_version=work.source.version,
        prepared_sha256=sha256_of(work.source.folder / PREPARED_FILE),
        identity=work.identity,
        environment=capture(),
        command=tuple(command),
        candidates=tuple(rows),
        eager_ms=_medians(measured, REFERENCE),
        chosen=chosen,
        headline=_headline(work, chosen, rows),
        notes=(
            *_notes(work, rows),
            eager.note,
            *gpu_notes(
                on_gpu,
                work.prepared.profile,
                work.prepared.objective,
                served=None if work.options.separate else chosen,
            ),
        ),
    )
    if not chosen:
        raise QualityError(finished.headline, hint="The prepared version stays as it was.")
    winner = next(plan for plan in plans if plan.name == chosen)
    deployment = publish_plan(
        work.source,
        winner,
        finished,
        separate=work.options.separate,
        threads=work.options.threads,
        progress=work.progress,
    )
    return FinishResult(work.source.model.name, deployment.version, finished, known=False)


def _build_and_judge(work: _Work, candidate: PreparedCandidate) -> tuple[FinishedCandidate, JudgedPlan | None]:
    """A failure is a fact of the report: the other candidates go on."""
    folder = work.source.folder / PREPARED_FOLDER
    row = FinishedCandidate(
        name=candidate.name, precision=candidate.precision, verdict="passed", reason="It keeps every gate."
    )
    try:
        plan = build_engine(
            load_artifact(folder / "candidates" / candidate.name),
            EngineOptions(workspace_bytes=work.options.workspace_bytes),
            runtime="tensorrt",
            # Triton's own backend runs a plan at the very shape of each call: so it is judged and timed.
            exact_shapes=work.options.separate,
            device=work.device,
            deadline_s=work.options.deadline_s,
            store=work.store,
            progress=work.progress,
        )
        row = row.model_copy(update={"receipt": plan.checks, "build_s": plan.details["engine"]["build_s"]})
        texts, answers = read_judging(folder)
        with work.progress.stage(f"{candidate.name} on the GPU") as step:
            quality = assess(
                plan,
                answers,
                texts,
                gates=work.prepared.gates,
                threads=work.options.threads,
                deadline_s=_JUDGE_DEADLINE_S,
                step=step,
                kinds=kinds_of(texts),
                # Those that were judged on the CPU share the error of 5 %, as there.
                judged=max(1, sum(row.precision != "fp32" for row in work.prepared.candidates)),
            )
            step.outcome("keeps its gates" if quality.holds else broken_sentence(quality))
    except TrimaranError as error:
        return row.model_copy(update={"verdict": "failed", "reason": str(error)}), None
    row = row.model_copy(update={"quality": quality})
    if not quality.holds:
        reason = f"Its answers drift on this GPU. {broken_sentence(quality)}"
        return row.model_copy(update={"verdict": "rejected", "reason": reason}), None
    return row, JudgedPlan(candidate.name, plan, quality)


def _race(work: _Work, plans: Sequence[JudgedPlan], eager: Eager) -> Measured:
    profile, objective = work.prepared.profile, work.prepared.objective
    entries = [RaceEntry(plan.name, plan.artifact, plan.quality.rows, competes=True) for plan in plans]
    if eager.artifact:
        entries.insert(0, RaceEntry(REFERENCE, eager.artifact, options={"device": f"cuda:{work.device}"}))
    with work.progress.stage("measure") as step, exclusive_gpu(work.device):
        measured = measure(
            entries,
            grid(profile),
            threads=work.options.threads,
            cores=cores_for(work.options.threads),
            effort=QUICK if work.options.quick else Effort(),
            step=step,
            deciding=decisive(profile, objective),
        )
        step.outcome(f"{len(entries)} contenders")
    return measured


def _gpu_facts(work: _Work, plans: Sequence[JudgedPlan]) -> dict[str, GpuFacts]:
    # Triton tells no times by events.
    if builds_by_trtexec():
        return {}
    shapes, threads = grid(work.prepared.profile), work.options.threads
    with exclusive_gpu(work.device):
        return {plan.name: gpu_facts(plan.artifact, shapes, threads=threads, device=work.device) for plan in plans}


def _medians(measured: Measured | None, name: str) -> dict[str, float]:
    rows = [row for row in (measured.measurements if measured else ()) if row.candidate == name and row.samples_ns]
    return {str(row.shape): median(row.samples_ns) / 1e6 for row in rows}


def _headline(work: _Work, chosen: str, rows: Sequence[FinishedCandidate]) -> str:
    where = f"{work.identity.gpu} with TensorRT {work.identity.version}"
    if not chosen:
        reasons = " ".join(f"{row.name}: {row.reason}" for row in rows)
        return f"No plan of {work.prepared.model} can be served on {where}. {reasons}"
    row = next(row for row in rows if row.name == chosen)
    shape = str(decisive(work.prepared.profile, work.prepared.objective)[0])
    return (
        f"{chosen} runs {work.prepared.model} in {row.measured_ms[shape]:.3f} ms at {shape} on {where}, "
        f"copies included. Over {row.quality.n if row.quality else 0} texts it keeps every {work.prepared.level} gate."
    )


def _notes(work: _Work, rows: Sequence[FinishedCandidate]) -> tuple[str, ...]:
    capability = work.identity.compute_capabilities[0]
    notes = [
        f"{row.name}: the receipt falls short of the graph: {check}."
        for row in rows
        for check in row.receipt
        if not check.holds
    ]
    if builds_by_trtexec():
        notes.append(_BY_TRTEXEC)
    if capability not in work.prepared.targets:
        targets = ", ".join(work.prepared.targets)
        notes.append(f"It was prepared for {targets}, and this GPU is {capability}: its predictions are for others.")
    return tuple(notes)
