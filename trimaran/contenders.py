"""Makes and judges candidates in child processes; one that dies is a verdict, never the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from trimaran import isolation
from trimaran.artifact import Artifact, Recipe, load_artifact
from trimaran.backends import Array
from trimaran.benchmarks.quality import assess
from trimaran.benchmarks.report import Quality
from trimaran.candidates import Candidate, candidate
from trimaran.corpus import digest_of_texts, read_texts, shipped_texts
from trimaran.environment import capture, tools, usable_cores
from trimaran.errors import TrimaranError
from trimaran.planning import LANES, Plan
from trimaran.progress import Progress
from trimaran.runtime.text import Text
from trimaran.store import Store

MAKE_DEADLINE_S = 1800.0
ASSESS_DEADLINE_S = 900.0


@dataclass
class Contender:
    """A candidate on its way: what was made of it, how true it is, or why it fell out."""

    row: Candidate
    artifact: Artifact | None = None
    quality: Quality | None = None
    failure: TrimaranError | None = None
    environment: dict[str, str] = field(default_factory=dict)


def try_candidates(
    plan: Plan, graph: Artifact, answers: Mapping[str, Array], *, store: Store, progress: Progress
) -> list[Contender]:
    """Makes and judges every candidate in child processes; one that dies is a rejection, never the end.

    Nothing is timed here, so two candidates are worked on at once, each with half of the threads.
    """
    fused: Artifact | TrimaranError | None = None
    if any(row.fused for row in plan.candidates):
        fused = _fuse(plan, graph, store=store, progress=progress)

    def work(row: Candidate) -> Contender:
        parent = fused if row.fused else graph
        if isinstance(parent, TrimaranError):
            return Contender(row, failure=parent)
        assert parent is not None
        with progress.stage(row.name) as step:
            contender = _try(plan, row, parent, answers, store=store)
            step.outcome(outcome_words(contender))
        return contender

    with ThreadPoolExecutor(LANES) as lanes:
        try:
            return list(lanes.map(work, plan.candidates))
        except BaseException:
            lanes.shutdown(wait=False, cancel_futures=True)
            raise


def candidate_stage(
    reference: str, name: str, calibration: Path | None, threads: int | None, *, store: Store, progress: Progress
) -> Artifact:
    """One candidate by itself, made in a child process under the first instruction set that runs."""
    row = candidate(name)
    parent = store.open(reference)
    texts = read_texts(calibration) if calibration else shipped_texts("calibration")
    with progress.stage(row.name) as step:
        artifact, restriction = isolation.first_restriction_that_runs(
            lambda restriction: _make(
                row, parent, texts, threads=threads or usable_cores(), restriction=restriction, store=store
            )
        )
        step.outcome("; ".join(str(check) for check in artifact.checks) + (f", {restriction}" if restriction else ""))
    return artifact


def _fuse(plan: Plan, graph: Artifact, *, store: Store, progress: Progress) -> Artifact | TrimaranError:
    with progress.stage("optimize") as step:
        try:
            folder = isolation.run(
                "trimaran.stages:fuse",
                deadline_s=MAKE_DEADLINE_S,
                parent=str(graph.directory),
                store=str(store.root),
                force=store.force,
                allow_partial=plan.config.allow_partial_fusion,
            )
        except TrimaranError as error:
            step.outcome(str(error))
            return error
        fused = load_artifact(Path(folder))
        step.outcome(", ".join(f"{name} {count}" for name, count in fused.details["fused_nodes"].items()))
    return fused


def _make(
    row: Candidate,
    parent: Artifact,
    calibration: Sequence[str],
    *,
    threads: int,
    restriction: dict[str, str],
    store: Store,
) -> Artifact:
    folder = isolation.run(
        "trimaran.stages:make_candidate",
        deadline_s=MAKE_DEADLINE_S,
        environment=restriction,
        parent=str(parent.directory),
        name=row.name,
        store=str(store.root),
        force=store.force,
        settings={
            "calibration": list(calibration) if row.calibrated else [],
            "threads": threads,
            "execution_environment": restriction,
        },
    )
    return load_artifact(Path(folder))


def _try(plan: Plan, row: Candidate, parent: Artifact, answers: Mapping[str, Array], *, store: Store) -> Contender:
    def attempt(restriction: dict[str, str]) -> tuple[Artifact, Quality]:
        artifact = _make(row, parent, plan.calibration, threads=plan.lane_threads, restriction=restriction, store=store)
        return artifact, judge(plan, artifact, answers, store=store)

    try:
        (artifact, quality), restriction = isolation.first_restriction_that_runs(attempt)
    except TrimaranError as error:
        return Contender(row, failure=error)
    return Contender(row, artifact, quality, environment=restriction)


def judge(plan: Plan, artifact: Artifact, answers: Mapping[str, Array], *, store: Store) -> Quality:
    recipe = Recipe(
        step="assess",
        parents=(artifact.digest,),
        parameters={
            "texts": digest_of_texts(plan.judging),
            "gates": [[gate.metric, gate.comparison, gate.limit] for gate in plan.gates],
            "threads": plan.lane_threads,
            "cpu": capture().cpu,
        },
        tools=tools("torch", "transformers", "onnxruntime", "openvino"),
    )
    texts: Sequence[Text] = plan.judging
    quality, _ = store.remember(
        recipe,
        Quality,
        lambda: assess(
            artifact, answers, texts, gates=plan.gates, threads=plan.lane_threads, deadline_s=ASSESS_DEADLINE_S
        ),
    )
    return quality


def outcome_words(contender: Contender) -> str:
    if contender.failure:
        return f"failed: {contender.failure}"
    assert contender.quality is not None
    broken = contender.quality.broken
    return f"rejected: {'; '.join(str(check) for check in broken)}" if broken else "keeps its gates"
