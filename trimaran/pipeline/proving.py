"""Makes every candidate and judges its answers. A candidate that crashes ends as `Failed` and never ends the run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from trimaran.core.artifact import Artifact, Recipe
from trimaran.core.call_memory import budget_bytes
from trimaran.core.corpus import digest_of_texts, kinds_of
from trimaran.core.environment import capture, tools
from trimaran.core.errors import TrimaranError
from trimaran.core.instructions import instruction_limit
from trimaran.core.isolation import first_restriction_that_runs
from trimaran.core.metrics import METRICS_VERSION
from trimaran.core.progress import Step
from trimaran.judging.judgement import WIDEST_FIRST, Quality
from trimaran.judging.quality import assess
from trimaran.pipeline.eager import ASSESS_DEADLINE_S, EagerAnswers
from trimaran.pipeline.lower_bounds import LARGE_BYTES, Rival, reason_not_to_judge, reason_to_skip, waits_for_rivals
from trimaran.pipeline.making import MakerInputs, fuse, make_candidate
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, Proven, Stopped, judged, outcome_words
from trimaran.pipeline.plan import LANES, DeployPlan, DeployRun
from trimaran.quantize.candidates import Candidate
from trimaran.quantize.half.on_cpu import half_on_cpu
from trimaran.runtime.text import PACKED_STEP, STEP

# So many times the weights of a graph are in memory while a candidate of it is made: ONNX Runtime's dynamic INT8 took
# 8.4 GB for 2.2 GB.
_COPIES_WHILE_MADE = 4
# Waits for eager PyTorch's answers, and raises what eager PyTorch raised.
WaitForAnswers = Callable[[], EagerAnswers]


def make_and_prove_candidates(
    run: DeployRun,
    graph: Artifact,
    answers: WaitForAnswers,
    *,
    when_proven: Callable[[Proven], object] | None = None,
) -> list[CandidateOutcome]:
    """The outcomes in the order of the plan's candidates. `when_proven` is called with each one as soon as it is.

    Nothing is timed here, so two candidates are worked on at once, each with half of the threads, if the memory allows
    it. Searched candidates take longest and begin, so that both lanes end together. Candidates whose lower bound can be
    measured wait for all others, because a faster one may be proven by then. Of a large model all but the first
    searched one wait.
    """
    if graph.size_bytes >= LARGE_BYTES:
        # Memory does not hold a large model three times: in eager PyTorch and in both lanes.
        answers()
    order = sorted(run.plan.candidates, key=lambda row: not row.searched)
    last = [row for row in order if waits_for_rivals(run.plan, row, graph)]
    first = [row for row in order if row not in last]
    outcomes: dict[str, CandidateOutcome] = {}
    count = lanes_within(budget_bytes(), graph)
    with ThreadPoolExecutor(count) as lanes:
        # Fusing takes a lane of its own: candidates made from the plain graph do not wait for it.
        fused = lanes.submit(fuse, run, graph) if any(row.fused for row in order) else None
        prover = _Prover(run, graph, fused, answers, when_proven)
        try:
            for rows in (first, last):
                alone = count == 1 or len(rows) == 1
                prover.use_threads(run.plan.config.threads if alone else run.plan.lane_threads)
                outcomes |= {outcome.candidate.name: outcome for outcome in lanes.map(prover.outcome, rows)}
            # If eager PyTorch failed, that is the error: no candidate is to blame.
            answers()
        except BaseException:  # Ctrl-C too: candidates that wait in the queue are not begun
            lanes.shutdown(wait=False, cancel_futures=True)
            raise
    return [outcomes[row.name] for row in run.plan.candidates]


def lanes_within(memory_bytes: int, graph: Artifact) -> int:
    """How many candidates of the graph may be made at once."""
    return max(1, min(LANES, memory_bytes // (_COPIES_WHILE_MADE * max(1, graph.size_bytes))))


class _Prover:
    """Works on candidates in several lanes. What one lane proves lets the others skip slower candidates."""

    def __init__(
        self,
        run: DeployRun,
        graph: Artifact,
        fused: Future[Artifact | TrimaranError] | None,
        answers: WaitForAnswers,
        when_proven: Callable[[Proven], object] | None,
    ) -> None:
        self._run, self._graph, self._fused, self._answers = run, graph, fused, answers
        self._when_proven = when_proven
        self._rivals: list[Rival] = []
        self._judging = threading.Lock()
        plan = run.plan
        self._inputs = MakerInputs(
            plan.calibration, plan.gates, plan.config.budget, plan.lane_threads, device=plan.device.number
        )

    def use_threads(self, threads: int) -> None:
        """Of each candidate that is made from now on."""
        self._inputs = replace(self._inputs, threads=threads)

    def outcome(self, row: Candidate) -> CandidateOutcome:
        parent = self._fused.result() if self._fused and row.fused else self._graph
        if isinstance(parent, TrimaranError):
            return Failed(row, parent)
        with self._run.progress.stage(row.name) as step:
            reason = self._reason_to_skip(row, parent)
            outcome = Stopped(row, reason) if reason else self._make_and_judge(row, parent, step)
            step.outcome(outcome_words(outcome))
        if isinstance(outcome, Proven) and self._when_proven:
            self._when_proven(outcome)
        # A lower bound is measured without a restriction, so only candidates that need none are its rivals.
        if isinstance(outcome, Proven) and not outcome.environment:
            self._rivals.append(Rival(row, outcome.artifact))
        return outcome

    def _reason_to_skip(self, row: Candidate, parent: Artifact) -> str:
        if not waits_for_rivals(self._run.plan, row, self._graph):
            return ""
        # The matrix products of a float candidate are those of the plain graph.
        source = parent if row.searched else self._graph
        return reason_to_skip(self._run.plan, row, source, self._rivals, store=self._run.store)

    def _make_and_judge(self, row: Candidate, parent: Artifact, step: Step) -> CandidateOutcome:
        def attempt(restriction: dict[str, str]) -> tuple[Artifact, Quality | Stopped]:
            artifact = make_candidate(
                row, parent, self._inputs, restriction=restriction, store=self._run.store, step=step
            )
            if waits_for_rivals(self._run.plan, row, self._graph) and (
                reason := reason_not_to_judge(self._run.plan, row, artifact, self._rivals, store=self._run.store)
            ):
                return artifact, Stopped(row, reason)
            eager = self._answers()
            with self._alone(), self._run.plan.device.alone():
                return artifact, judge(self._run, artifact, eager)

        try:
            (artifact, found), restriction = first_restriction_that_runs(attempt)
        except TrimaranError as error:
            return Failed(row, error)
        return found if isinstance(found, Stopped) else judged(row, artifact, found, restriction)

    def _alone(self) -> contextlib.AbstractContextManager[object]:
        """Lets one judgement run at a time, because each uses as many threads as the candidate will be served with.

        Graphs for another machine's GPU are not served here, so two may run at once with half of the threads each.
        """
        return contextlib.nullcontext() if self._run.plan.config.target else self._judging


def judge(run: DeployRun, artifact: Artifact, eager: EagerAnswers) -> Quality:
    """Compares the artifact's answers with eager PyTorch's; an earlier judgement of the same is reused."""
    plan, on_data, on_teacher = run.plan, eager.on_data, eager.on_teacher
    threads = plan.lane_threads if plan.config.target else plan.config.threads
    recipe = assess_recipe(
        plan,
        artifact,
        threads=threads,
        libraries=("torch", "transformers", "onnxruntime", "openvino"),
        judged=lossy_candidates(plan.candidates),
        **({"data": on_data.data.digest} if on_data else {}),
        **({"teacher": on_teacher.digest} if on_teacher else {}),
    )

    def assessed() -> Quality:
        return assess(
            half_on_cpu(artifact, run.store),
            eager.judging,
            plan.judging,
            gates=plan.gates,
            threads=threads,
            deadline_s=ASSESS_DEADLINE_S,
            on_data=on_data,
            on_teacher=on_teacher,
            judged=lossy_candidates(plan.candidates),
            kinds=kinds_of(plan.judging),
            effort=plan.judging_effort,
        )

    return run.store.remember(recipe, Quality, assessed)[0]


def lossy_candidates(rows: Sequence[Candidate]) -> int:
    """How many candidates share the error of 5 %. Those in fp32 compute what eager PyTorch does."""
    return max(1, sum(row.precision != "fp32" for row in rows))


def assess_recipe(
    plan: DeployPlan, artifact: Artifact, *, threads: int, libraries: Sequence[str], **more: Any
) -> Recipe:
    """What a judgement of fidelity depends on, and is remembered by."""
    return Recipe(
        step="assess",
        parents=(artifact.digest,),
        parameters={
            "metrics": METRICS_VERSION,
            "texts": digest_of_texts(plan.judging),
            "gates": [[gate.metric, gate.comparison, gate.limit] for gate in plan.gates],
            "threads": threads,
            "cpu": capture().cpu,
            **instruction_limit(),
            "policies": [*WIDEST_FIRST, PACKED_STEP, STEP],
            **({"certificate": plan.judging_effort.certificate_texts} if plan.config.quick else {}),
            **more,
        },
        tools=tools(*libraries),
    )
