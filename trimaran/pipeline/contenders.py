"""Makes and judges candidates in child processes; one that dies is a verdict, never the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimaran.core import isolation
from trimaran.core.artifact import Artifact, Check, Recipe, load_artifact
from trimaran.core.backends import Array
from trimaran.core.candidates import Candidate, candidate
from trimaran.core.config import BUDGET_S
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import capture, tools, usable_cores
from trimaran.core.errors import QualityError, TrimaranError
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.progress import Progress, Step
from trimaran.core.store import Store
from trimaran.core.tasks import Gate, Level, gates_for
from trimaran.judging.judgement import WIDEST_FIRST, Quality
from trimaran.judging.labelled import LabelledData, OnData, read_labelled
from trimaran.judging.quality import assess, reference_answers
from trimaran.pipeline.lower_bounds import LARGE_BYTES, Rival, bounded, largest_weight, no_chance
from trimaran.pipeline.plan import LANES, Plan, texts_for
from trimaran.runtime.text import PACKED_STEP, STEP, Text

MAKE_DEADLINE_S = 1800.0
ASSESS_DEADLINE_S = 900.0


@dataclass
class Contender:
    """A candidate on its way: what was made of it, how true it is, or why it fell out. `stopped` is why it was not
    made: it could not have won.
    """

    row: Candidate
    artifact: Artifact | None = None
    quality: Quality | None = None
    failure: TrimaranError | None = None
    environment: dict[str, str] = field(default_factory=dict)
    stopped: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a candidate is made from and for, beside its parent."""

    calibration: Sequence[Text]
    gates: Sequence[Gate]
    budget_s: float
    threads: int
    half_outputs: bool = False


def try_candidates(
    plan: Plan,
    graph: Artifact,
    answers: Callable[[], Mapping[str, Array]],
    *,
    store: Store,
    progress: Progress,
    on_data: OnData | None = None,
) -> list[Contender]:
    """Makes and judges every candidate in child processes; one that dies is a rejection, never the end.

    `answers` waits for eager PyTorch's: making has no need of them, but a large model is not held by eager and by two
    lanes at once.

    Nothing is timed here, so two candidates are worked on at once, each with half of the threads. Those that are
    searched take longest and begin, so that the lanes end together; but one whose best time can be told beforehand
    waits for all others, of which a faster one may be proven then.
    """
    proven: list[Contender] = []
    if graph.size_bytes >= LARGE_BYTES:
        answers()

    def work(row: Candidate) -> Contender:
        parent = fusing.result() if fusing and row.fused else graph
        if isinstance(parent, TrimaranError):
            return Contender(row, failure=parent)
        with progress.stage(row.name) as step:
            # The products of a float graph are told by the plain one.
            source = parent if row.searched else graph
            if row in waiting and (reason := no_chance(plan, row, source, _rivals(proven), store=store)):
                contender = Contender(row, stopped=reason)
            else:
                contender = _try(plan, row, parent, answers, store=store, step=step, on_data=on_data)
            step.outcome(outcome_words(contender))
        if contender.quality and contender.quality.holds:
            proven.append(contender)
        return contender

    order = sorted(plan.candidates, key=lambda row: not row.searched)
    waiting = [row for row in order if bounded(plan, row, graph)]
    turns = [[row for row in order if row not in waiting], waiting]
    with ThreadPoolExecutor(LANES) as lanes:
        # In a lane of its own: the searched one is made from the plain graph and does not wait for the fused one.
        fuse = any(row.fused for row in plan.candidates)
        fusing = lanes.submit(_fuse, plan, graph, store=store, progress=progress) if fuse else None
        try:
            done = {
                row: contender for turn in turns for row, contender in zip(turn, lanes.map(work, turn), strict=True)
            }
            answers()  # Where eager PyTorch failed, no candidate did.
            return [done[row] for row in plan.candidates]
        except BaseException:  # Ctrl-C too: what waits in the queue is not begun any more
            lanes.shutdown(wait=False, cancel_futures=True)
            raise


def _rivals(proven: Sequence[Contender]) -> list[Rival]:
    """Those that run on the instructions this CPU advertises: a bound is taken with the same."""
    return [(one.row, one.artifact) for one in proven if one.artifact and not one.environment]


def candidate_stage(
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
    """One candidate by itself, made in a child process under the first instruction set that runs.

    With labelled data it is held against its parent's answers; one that loses too much is made, but refused.
    """
    row = candidate(name)
    parent = store.open(reference)
    labelled = read_labelled(data, metric, task=parent.task, labels=parent.labels) if data and metric else None
    wanted = Wanted(
        calibration=texts_for(parent.task, "calibration", calibration),
        gates=gates_for(parent.task, fidelity, gates or {}),
        budget_s=budget_s,
        threads=threads or usable_cores(),
        half_outputs=half_outputs,
    )
    with progress.stage(row.name) as step:
        artifact, restriction = isolation.first_restriction_that_runs(
            lambda restriction: _make(row, parent, wanted, restriction=restriction, store=store, step=step)
        )
        step.outcome("; ".join(str(check) for check in artifact.checks) + (f", {restriction}" if restriction else ""))
    if labelled:
        with progress.stage("labelled data") as step:
            check = _data_check(parent, artifact, labelled, threads=wanted.threads)
            step.outcome(str(check))
        if not check.holds:
            raise QualityError(
                f"{row.name} loses too much on {data}: {check}.",
                hint=f"It was made all the same: {artifact.directory}.",
            )
    return artifact


def _data_check(parent: Artifact, artifact: Artifact, data: LabelledData, *, threads: int) -> Check:
    before, after = (
        reference_answers(side, data.texts, threads=threads, deadline_s=ASSESS_DEADLINE_S)
        for side in (parent, artifact)
    )
    return data.score(artifact, before, after).check()


def _fuse(plan: Plan, graph: Artifact, *, store: Store, progress: Progress) -> Artifact | TrimaranError:
    with progress.stage("optimize") as step:
        try:
            folder = isolation.run(
                "trimaran.pipeline.children:fuse",
                deadline_s=MAKE_DEADLINE_S,
                parent=str(graph.directory),
                store=str(store.root),
                force=store.force,
                allow_partial=plan.config.allow_partial_fusion,
                threads=plan.lane_threads,
            )
        except TrimaranError as error:
            step.outcome(str(error))
            return error
        fused = load_artifact(Path(folder))
        step.outcome(", ".join(f"{name} {count}" for name, count in fused.details["fused_nodes"].items()))
    return fused


def _make(
    row: Candidate, parent: Artifact, wanted: Wanted, *, restriction: dict[str, str], store: Store, step: Step
) -> Artifact:
    settings: dict[str, Any] = {"threads": wanted.threads, "execution_environment": restriction}
    settings["half_outputs"] = wanted.half_outputs
    if row.calibrated:
        settings["calibration"] = list(wanted.calibration)
    if row.searched:
        settings["gates"] = [[gate.metric, gate.comparison, gate.limit] for gate in wanted.gates]
        settings["budget_s"] = wanted.budget_s
        settings["weight_levels"] = largest_weight(row.backend, tuple(sorted(restriction.items())))
    folder = isolation.run(
        "trimaran.pipeline.children:make_candidate",
        deadline_s=MAKE_DEADLINE_S,
        environment=restriction,
        on_progress=step.advance,
        parent=str(parent.directory),
        name=row.name,
        store=str(store.root),
        force=store.force,
        settings=settings,
    )
    return load_artifact(Path(folder))


def _try(
    plan: Plan,
    row: Candidate,
    parent: Artifact,
    answers: Callable[[], Mapping[str, Array]],
    *,
    store: Store,
    step: Step,
    on_data: OnData | None,
) -> Contender:
    wanted = Wanted(plan.calibration, plan.gates, plan.config.budget, plan.lane_threads)

    def attempt(restriction: dict[str, str]) -> tuple[Artifact, Quality]:
        artifact = _make(row, parent, wanted, restriction=restriction, store=store, step=step)
        return artifact, judge(plan, artifact, answers(), store=store, on_data=on_data)

    try:
        (artifact, quality), restriction = isolation.first_restriction_that_runs(attempt)
    except TrimaranError as error:
        return Contender(row, failure=error)
    return Contender(row, artifact, quality, environment=restriction)


def eager_on_data(plan: Plan, reference: Artifact, progress: Progress) -> OnData | None:
    """What eager PyTorch says to the user's labelled data, if there is any."""
    if plan.data is None:
        return None
    with progress.stage("labelled data") as step:
        eager = reference_answers(reference, plan.data.texts, threads=plan.config.threads, deadline_s=ASSESS_DEADLINE_S)
        step.outcome(f"{plan.data.metric} over {len(plan.data.gold)} items")
    return OnData(plan.data, eager)


def assess_recipe(plan: Plan, artifact: Artifact, *, threads: int, libraries: Sequence[str], **more: Any) -> Recipe:
    """What a judgement of fidelity rests on, and is remembered by."""
    return Recipe(
        step="assess",
        parents=(artifact.digest,),
        parameters={
            "metrics": METRICS_VERSION,
            "texts": digest_of_texts(plan.judging),
            "gates": [[gate.metric, gate.comparison, gate.limit] for gate in plan.gates],
            "threads": threads,
            "cpu": capture().cpu,
            "policies": [*WIDEST_FIRST, PACKED_STEP, STEP],
            **more,
        },
        tools=tools(*libraries),
    )


def judge(
    plan: Plan,
    artifact: Artifact,
    answers: Mapping[str, Array],
    *,
    store: Store,
    on_data: OnData | None = None,
) -> Quality:
    recipe = assess_recipe(
        plan,
        artifact,
        threads=plan.lane_threads,
        libraries=("torch", "transformers", "onnxruntime", "openvino"),
        **({"data": on_data.data.digest} if on_data else {}),
    )
    texts: Sequence[Text] = plan.judging
    quality, _ = store.remember(
        recipe,
        Quality,
        lambda: assess(
            artifact,
            answers,
            texts,
            gates=plan.gates,
            threads=plan.lane_threads,
            deadline_s=ASSESS_DEADLINE_S,
            on_data=on_data,
        ),
    )
    return quality


def outcome_words(contender: Contender) -> str:
    if contender.stopped:
        return f"stopped: {contender.stopped}"
    if contender.failure:
        return f"failed: {contender.failure}"
    assert contender.quality is not None
    broken = contender.quality.broken
    return f"rejected: {'; '.join(str(check) for check in broken)}" if broken else "keeps its gates"
