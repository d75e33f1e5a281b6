"""From judged contenders to a report: eager, its baselines and every candidate that runs, timed in one race."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import psutil

import trimaran
from trimaran.benchmarks.measure.baselines import Baseline, baseline_entries, runs_as
from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.measure.runner import Effort, Measured, RaceEntry, measure
from trimaran.benchmarks.report.choice import baseline_row, choose, failed_row, judged_row, stopped_row
from trimaran.benchmarks.report.figures import decisive
from trimaran.benchmarks.report.report import REFERENCE, CandidateRow, Report
from trimaran.benchmarks.report.wording import metric_name
from trimaran.core.artifact import Artifact, Recipe
from trimaran.core.backends import Array
from trimaran.core.environment import capture, tools
from trimaran.core.errors import TrimaranError
from trimaran.core.pinning import cores_for
from trimaran.core.progress import Progress
from trimaran.core.store import Store
from trimaran.core.tail import TAIL_METRICS, too_few_words
from trimaran.core.tasks import Gate
from trimaran.judging.judgement import Quality
from trimaran.judging.probe_process import ProbeProcess
from trimaran.judging.quality import assess, reference_answers
from trimaran.pipeline.contenders import ASSESS_DEADLINE_S, Contender, assess_recipe
from trimaran.pipeline.plan import Plan

# Contenders are all open at once; those that nothing is decided on stay out when memory is short.
_SHARE_OF_MEMORY = 0.6


def eager_answers(
    plan: Plan, reference: Artifact, progress: Progress, *, threads: int | None = None
) -> dict[str, Array]:
    with progress.stage("eager answers") as step:
        answers = reference_answers(
            reference, plan.judging, threads=threads or plan.config.threads, deadline_s=ASSESS_DEADLINE_S
        )
        step.outcome(f"{len(plan.judging)} judging texts")
    return answers


def judge_baselines(
    plan: Plan,
    reference: Artifact,
    rows: Sequence[Baseline],
    answers: Mapping[str, Array],
    *,
    store: Store,
    progress: Progress,
) -> dict[str, Quality]:
    """How true the baselines are to eager fp32; one that cannot answer has no quality, and the race says why."""
    found: dict[str, Quality] = {}
    for row in rows:
        if not row.judged or row.why_not():
            continue
        recipe = assess_recipe(
            plan,
            reference,
            threads=plan.config.threads,
            libraries=("torch", "transformers"),
            options=dict(row.options),
        )
        with progress.stage(row.name) as step, contextlib.suppress(TrimaranError):
            found[row.name], _ = store.remember(recipe, Quality, partial(_assessed, plan, reference, row, answers))
            step.outcome("answers held against eager fp32")
    return found


def _assessed(plan: Plan, reference: Artifact, row: Baseline, answers: Mapping[str, Array]) -> Quality:
    def opened() -> ProbeProcess:
        return ProbeProcess(
            reference, threads=plan.config.threads, options=dict(row.options), deadline_s=ASSESS_DEADLINE_S
        )

    return assess(reference, answers, plan.judging, gates=plan.gates, threads=plan.config.threads, open_probe=opened)


def entry_of(contender: Contender) -> RaceEntry | None:
    """A contender that can run, or None. One that broke its gates is measured briefly: nothing is decided on it."""
    if contender.artifact is None or contender.quality is None:
        return None
    return RaceEntry(
        contender.row.name,
        contender.artifact,
        contender.quality.rows,
        contender.environment,
        brief=not contender.quality.holds,
        competes=contender.quality.holds,
    )


def race_entries(
    reference: Artifact, contenders: Sequence[Contender], baselines: Sequence[Baseline]
) -> list[RaceEntry]:
    """Eager, its baselines, and every candidate that runs, as far as they fit into memory together."""
    eager = RaceEntry(REFERENCE, reference)
    able = [(contender, entry) for contender in contenders if (entry := entry_of(contender))]
    peaks = {entry.name: contender.quality.peak_memory_bytes for contender, entry in able if contender.quality}
    needed = [entry for _, entry in able if not entry.brief]
    left = _SHARE_OF_MEMORY * psutil.virtual_memory().available - sum(peaks[entry.name] for entry in needed)
    kept = []
    for _, entry in able:
        if entry.brief:
            left -= peaks[entry.name]
        if not entry.brief or left > 0:
            kept.append(entry)
    return [eager, *baseline_entries(reference, baselines), *kept]


def measure_stage(
    plan: Plan,
    reference: Artifact,
    contenders: Sequence[Contender],
    *,
    store: Store,
    progress: Progress,
    effort: Effort | None = None,
    baselines: Sequence[Baseline] = (),
) -> Measured:
    """All contenders interleaved on the same cores; earlier measurements of the same are reused."""
    entries = race_entries(reference, contenders, baselines)
    effort, threads = effort or Effort(), plan.config.threads
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
        },
        tools=tools("torch", "onnxruntime", "openvino"),
    )
    with progress.stage("measure") as step:
        measured, known = store.remember(
            recipe,
            Measured,
            lambda: measure(
                entries, plan.shapes, threads=threads, cores=cores, effort=effort, step=step, deciding=deciding
            ),
        )
        rounds = max((len(found.rounds) for found in measured.measurements), default=0)
        step.outcome(
            f"{'reused, ' if known else ''}{len(entries)} contenders, {len(plan.shapes)} shapes, "
            f"{rounds} interleaved rounds"
        )
    return measured


def write_up(
    plan: Plan,
    reference: Artifact,
    contenders: Sequence[Contender],
    measured: Measured,
    command: Sequence[str],
    *,
    baselines: Sequence[Baseline] = (),
    baseline_qualities: Mapping[str, Quality] | None = None,
) -> Report:
    outcomes = {outcome.candidate: outcome for outcome in measured.outcomes}
    base = judged_row(REFERENCE, reference, None, outcome=outcomes[REFERENCE])
    base = base.model_copy(update={"runs_as": runs_as(reference)})
    choice = choose(
        [_row(contender, measured) for contender in contenders],
        measured.measurements,
        reference=base,
        model=plan.ref.name,
        level=plan.config.fidelity,
        objective=plan.config.objective,
        profile=plan.profile,
    )
    return Report(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        trimaran=trimaran.__version__,
        model=plan.ref.name,
        task=plan.ref.task,
        family=plan.ref.family,
        level=plan.config.fidelity,
        gates=plan.gates,
        objective=plan.config.objective,
        threads=plan.config.threads,
        profile=plan.profile,
        environment=capture(),
        command=tuple(command),
        reference=base,
        baselines=tuple(
            baseline_row(reference, row, outcomes.get(row.name), (baseline_qualities or {}).get(row.name))
            for row in baselines
        ),
        candidates=choice.rows,
        measurements=measured.measurements,
        verdict=choice.verdict,
        notes=(
            *plan.notes,
            *filter(None, [noticed(measured.others_share)]),
            *_restriction_notes(contenders),
            *_memory_notes(contenders, set(outcomes)),
            *stopped_notes(measured),
            *too_few_texts_notes(plan.gates, len(plan.judging)),
        ),
        others_share=measured.others_share,
        cores=cores_for(plan.config.threads),
    )


def _row(contender: Contender, measured: Measured) -> CandidateRow:
    if contender.stopped:
        return stopped_row(contender.row.name, contender.row.backend, contender.row.precision, contender.stopped)
    if contender.artifact is None:
        reason = contender.failure or "It was not made."
        return failed_row(contender.row.name, contender.row.backend, contender.row.precision, reason)
    outcomes = {outcome.candidate: outcome for outcome in measured.outcomes}
    return judged_row(
        contender.row.name,
        contender.artifact,
        contender.quality,
        outcome=outcomes.get(contender.row.name),
        environment=contender.environment,
    )


def _restriction_notes(contenders: Sequence[Contender]) -> tuple[str, ...]:
    return tuple(
        f"{contender.row.name} died of SIGILL with the instructions this CPU advertises; it was made, judged, measured "
        f"and will be served with {', '.join(f'{key}={value}' for key, value in contender.environment.items())}."
        for contender in contenders
        if contender.environment
    )


def _memory_notes(contenders: Sequence[Contender], measured: set[str]) -> tuple[str, ...]:
    left_out = [
        contender.row.name for contender in contenders if entry_of(contender) and contender.row.name not in measured
    ]
    return (f"Rejected and not measured, because memory was short: {', '.join(left_out)}.",) if left_out else ()


def too_few_texts_notes(gates: Sequence[Gate], texts: int) -> tuple[str, ...]:
    words = too_few_words(texts)
    tails = [metric_name(gate.metric) for gate in gates if gate.metric in TAIL_METRICS]
    return tuple(f"There are few judging texts: {tail} is {words}." for tail in tails) if words else ()


def stopped_notes(measured: Measured) -> tuple[str, ...]:
    stopped = [f"{found.candidate} {found.stopped}" for found in measured.outcomes if found.stopped]
    return (f"Stopped early, because they could not win any more: {'; '.join(stopped)}.",) if stopped else ()
