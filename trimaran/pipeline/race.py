"""Times eager PyTorch, its baselines and every candidate that runs in one race, and reports the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import psutil

from trimaran.benchmarks.measure.baselines import Baseline, baseline_entries, environment_for, runs_as
from trimaran.benchmarks.measure.gpu_state import GpuFacts
from trimaran.benchmarks.measure.quiet import DELAY_LIMIT, busy_words, noticed, wait_until_quiet
from trimaran.benchmarks.measure.runner import ContenderOutcome as Timing
from trimaran.benchmarks.measure.runner import Effort, Measured, RaceEntry, measure
from trimaran.benchmarks.report.choice import (
    baseline_row,
    choose,
    choose_unmeasured,
    failed_row,
    judged_row,
    stopped_row,
)
from trimaran.benchmarks.report.figures import decisive, rounds_of_race
from trimaran.benchmarks.report.report import EAGER, REFERENCE, CandidateRow, Report, ReportVerdict
from trimaran.benchmarks.report.wording import metric_name
from trimaran.core.artifact import Artifact, Recipe
from trimaran.core.devices import Device
from trimaran.core.environment import capture, tools
from trimaran.core.errors import TrimaranError
from trimaran.core.instructions import instruction_limit
from trimaran.core.pinning import cores_for
from trimaran.core.samples import Shape
from trimaran.core.tail import too_few_words
from trimaran.core.tasks import TAILS, Gate
from trimaran.judging.judgement import Quality
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.quality import assess
from trimaran.pipeline.eager import ASSESS_DEADLINE_S
from trimaran.pipeline.on_gpu import gpu_notes
from trimaran.pipeline.outcomes import CandidateOutcome, Failed, Judged, Proven, Rejected, Stopped
from trimaran.pipeline.plan import DeployPlan, DeployRun
from trimaran.pipeline.proving import assess_recipe
from trimaran.runtime.text import Array

# `--wait-quiet` tries again for this long.
WAIT_QUIET_S = 1800.0
# All contenders are open at once. When memory is short, rejected candidates are not measured.
_SHARE_OF_MEMORY = 0.6

# The race of `deploy --quick`: enough to tell candidates apart that differ by much.
QUICK = Effort(rounds=3, minimum_rounds=3, minimum_time_s=0.05, warmup_time_s=0.02, budget_s=6.0, leader_rounds=0)


def judge_baselines(
    run: DeployRun, reference: Artifact, rows: Sequence[Baseline], answers: Mapping[str, Array]
) -> dict[str, Quality]:
    """How true the baselines are to eager fp32. One that cannot answer has no quality, and the race says why."""
    qualities: dict[str, Quality] = {}
    for row in rows:
        if not row.judged or row.why_not():
            continue
        recipe = assess_recipe(
            run.plan,
            reference,
            threads=run.plan.config.threads,
            libraries=("torch", "transformers"),
            options={**run.plan.eager_options, **dict(row.options)},
        )
        assessed = partial(_assessed, run.plan, reference, row, answers)
        with run.progress.stage(row.name) as step, contextlib.suppress(TrimaranError):
            qualities[row.name], _ = run.store.remember(recipe, Quality, assessed)
            step.outcome("answers compared with eager fp32")
    return qualities


def _assessed(plan: DeployPlan, reference: Artifact, row: Baseline, answers: Mapping[str, Array]) -> Quality:
    def opened() -> ProbeProcess:
        return ProbeProcess(
            reference,
            threads=plan.config.threads,
            environment=environment_for(row.probe),
            options={**plan.eager_options, **dict(row.options)},
            deadline_s=ASSESS_DEADLINE_S,
        )

    return assess(reference, answers, plan.judging, gates=plan.gates, threads=plan.config.threads, open_probe=opened)


def entry_of(outcome: Judged) -> RaceEntry:
    rejected = isinstance(outcome, Rejected)
    return RaceEntry(
        outcome.candidate.name,
        outcome.artifact,
        outcome.quality.rows,
        dict(outcome.environment),
        brief=rejected,
        competes=not rejected,
    )


def race_entries(
    reference: Artifact,
    outcomes: Sequence[CandidateOutcome],
    baselines: Sequence[Baseline],
    eager_options: Mapping[str, str] | None = None,
) -> list[RaceEntry]:
    """Eager PyTorch, its baselines, every proven candidate, and the rejected ones that fit into memory beside them."""
    able = [outcome for outcome in outcomes if isinstance(outcome, Judged)]
    needed = sum(outcome.quality.peak_memory_bytes for outcome in able if isinstance(outcome, Proven))
    left = _SHARE_OF_MEMORY * psutil.virtual_memory().available - needed
    measured = []
    for outcome in able:
        if isinstance(outcome, Rejected):
            left -= outcome.quality.peak_memory_bytes
        if isinstance(outcome, Proven) or left > 0:
            measured.append(entry_of(outcome))
    eager = dict(eager_options or {})
    return [RaceEntry(REFERENCE, reference, options=eager), *baseline_entries(reference, baselines, eager), *measured]


def measure_candidates(
    run: DeployRun,
    reference: Artifact,
    outcomes: Sequence[CandidateOutcome],
    *,
    effort: Effort | None = None,
    baselines: Sequence[Baseline] = (),
) -> Measured:
    """All contenders in interleaved rounds on the same cores. An earlier measurement of the same is reused."""
    plan = run.plan
    entries = race_entries(reference, outcomes, baselines, plan.eager_options)
    threads = plan.config.threads
    effort = (effort or Effort()).model_copy(update={"delay_limit": None if plan.config.busy_ok else DELAY_LIMIT})
    cores, deciding = cores_for(threads), decisive(plan.profile, plan.config.objective)
    recipe = Recipe(
        step="measure",
        parents=tuple(entry.artifact.digest for entry in entries),
        parameters={
            "entries": [[entry.name, entry.rows, entry.environment, entry.options, entry.brief] for entry in entries],
            "shapes": [str(shape) for shape in plan.shapes],
            "deciding": [str(shape) for shape in deciding],
            "threads": threads,
            "cores": list(cores),
            "effort": effort.model_dump(mode="json"),
            "environment": capture().model_dump(mode="json"),
            **instruction_limit(),
        },
        tools=tools("torch", "onnxruntime", "openvino"),
    )
    with run.progress.stage("measure") as step:
        race = partial(
            _measured_alone,
            plan.device,
            entries,
            plan.shapes,
            threads=threads,
            cores=cores,
            effort=effort,
            step=step,
            deciding=deciding,
        )
        wait_s = WAIT_QUIET_S if plan.config.wait_quiet else 0.0
        measured, known = run.store.remember(
            recipe,
            Measured,
            lambda: _when_quiet(race, cores, wait_s=wait_s),
            keep=lambda race_result: not race_result.busy,
        )
        if measured.busy:
            step.outcome(
                f"not measured: {busy_words(measured.others_share, measured.delayed)}; run again, or with --wait-quiet"
            )
            return measured
        rounds, more = rounds_of_race(measured.measurements, REFERENCE)
        further = f", {more} more of the leaders" if more else ""
        step.outcome(
            f"{'reused, ' if known else ''}{len(entries)} contenders, {len(plan.shapes)} shapes, "
            f"{rounds} interleaved rounds{further}"
        )
    return measured


def _when_quiet(race: Callable[[], Measured], cores: Sequence[int], *, wait_s: float) -> Measured:
    """The race; one that other work disturbed is run again whenever the machine is quiet, for so long."""
    until_s = time.monotonic() + wait_s
    measured = race()
    while measured.busy and wait_until_quiet(cores, until_s=until_s):
        measured = race()
    return measured


def _measured_alone(device: Device, entries: Sequence[RaceEntry], shapes: Sequence[Shape], **settings: Any) -> Measured:
    """Contenders on a GPU are timed while nothing else of trimaran uses it."""
    with device.alone():
        return measure(entries, shapes, **settings)


def make_report(
    plan: DeployPlan,
    reference: Artifact,
    outcomes: Sequence[CandidateOutcome],
    measured: Measured,
    command: Sequence[str],
    *,
    baselines: Sequence[Baseline] = (),
    baseline_qualities: Mapping[str, Quality] | None = None,
    on_gpu: Mapping[str, GpuFacts] | None = None,
) -> Report:
    """The report with its verdict: which candidate is chosen, and why not each of the others."""
    on_gpu = on_gpu or {}
    timings = {timing.candidate: timing for timing in measured.outcomes}
    base = judged_row(REFERENCE, reference, None, outcome=timings[REFERENCE])
    where = f" on {plan.eager_device}" if plan.device.kind == "cuda" else ""
    base = base.model_copy(update={"runs_as": f"{runs_as(reference)}{where}", "gpu": on_gpu.get(REFERENCE)})
    rows = [report_row(outcome, timings.get(outcome.candidate.name)) for outcome in outcomes]
    rows = [row.model_copy(update={"gpu": on_gpu[row.name]}) if row.name in on_gpu else row for row in rows]
    choice = (
        choose_unmeasured(rows, level=plan.config.fidelity, why=busy_words(measured.others_share, measured.delayed))
        if measured.busy
        else choose(
            rows,
            measured.measurements,
            reference=base,
            model=plan.ref.name,
            level=plan.config.fidelity,
            objective=plan.config.objective,
            profile=plan.profile,
            eager="eager PyTorch on the CPU" if where == " on cpu" else "eager PyTorch",
        )
    )
    return Report(
        **plan.run_facts(command),
        threads=plan.config.threads,
        reference=base,
        baselines=tuple(
            baseline_row(reference, row, timings.get(row.name), (baseline_qualities or {}).get(row.name))
            for row in baselines
        ),
        candidates=choice.rows,
        measurements=measured.measurements,
        verdict=choice.verdict if plan.graph is None else _of_the_graph(choice.verdict),
        notes=(
            *plan.notes,
            *filter(None, [] if measured.busy else [noticed(measured.others_share)]),
            *restriction_notes(outcomes),
            *_memory_notes(outcomes, set(timings)),
            *stopped_notes(measured),
            *too_few_texts_notes(plan.gates, len(plan.judging)),
            *gpu_notes(on_gpu, plan.profile, plan.config.objective, served=choice.verdict.chosen),
        ),
        others_share=measured.others_share,
        cores=cores_for(plan.config.threads),
    )


def _of_the_graph(verdict: ReportVerdict) -> ReportVerdict:
    """The sentences name eager PyTorch; a model without trained weights is compared with its own graph."""
    sentences = {
        key: getattr(verdict, key).replace(EAGER, "the given fp32 graph") for key in ("speed", "truth", "proof")
    }
    return verdict.model_copy(update=sentences)


def report_row(outcome: CandidateOutcome, timing: Timing | None) -> CandidateRow:
    row = outcome.candidate
    match outcome:
        case Stopped(reason=reason):
            return stopped_row(row.name, row.backend, row.precision, reason)
        case Failed(error=error):
            return failed_row(row.name, row.backend, row.precision, error)
        case Proven() | Rejected():
            return judged_row(
                row.name, outcome.artifact, outcome.quality, outcome=timing, environment=outcome.environment
            )


def restriction_notes(outcomes: Sequence[CandidateOutcome]) -> tuple[str, ...]:
    return tuple(
        f"{outcome.candidate.name} died of SIGILL with the instructions this CPU advertises; it was made, judged, "
        f"measured and will be served with {', '.join(f'{key}={value}' for key, value in outcome.environment.items())}."
        for outcome in outcomes
        if isinstance(outcome, Judged) and outcome.environment
    )


def _memory_notes(outcomes: Sequence[CandidateOutcome], measured: set[str]) -> tuple[str, ...]:
    judged = [outcome.candidate.name for outcome in outcomes if isinstance(outcome, Judged)]
    left_out = [name for name in judged if name not in measured]
    return (f"Rejected and not measured, because memory was short: {', '.join(left_out)}.",) if left_out else ()


def too_few_texts_notes(gates: Sequence[Gate], texts: int) -> tuple[str, ...]:
    words = too_few_words(texts)
    tails = [metric_name(gate.metric) for gate in gates if gate.metric in TAILS]
    return tuple(f"There are few judging texts: {tail} is {words}." for tail in tails) if words else ()


def stopped_notes(measured: Measured) -> tuple[str, ...]:
    stopped = [f"{timing.candidate} {timing.stopped}" for timing in measured.outcomes if timing.stopped]
    return (f"Stopped early, because they could not win any more: {'; '.join(stopped)}.",) if stopped else ()
