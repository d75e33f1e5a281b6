"""Runs a suite over a model: checks the request, makes, judges and times the candidates, then walks the scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran.benchmarks.measure.baselines import BASELINES, baseline_entries, baselines
from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.report.report import REFERENCE, Report
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.benchmarks.scenarios.loadgen import driver
from trimaran.benchmarks.scenarios.suite import Suite
from trimaran.benchmarks.scenarios.suite_state import begin, save
from trimaran.core.artifact import Artifact, digest_of
from trimaran.core.config import DeployConfig, refuse_unknown
from trimaran.core.corpus import digest_of_texts
from trimaran.core.environment import capture
from trimaran.core.errors import UsageError
from trimaran.core.progress import Progress
from trimaran.core.store import Store
from trimaran.judging.probe import untruncated_lengths
from trimaran.pipeline.eager import eager_answers
from trimaran.pipeline.exporting import export_model
from trimaran.pipeline.outcomes import CandidateOutcome, Judged
from trimaran.pipeline.plan import DeployPlan, DeployRun, plan_deployment, require_writable, texts_for
from trimaran.pipeline.proving import make_and_prove_candidates
from trimaran.pipeline.race import entry_of, judge_baselines, make_report, measure_candidates
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.pipeline.suite.walk import Walk
from trimaran.quantize.candidates import CANDIDATES, candidates
from trimaran.runtime.text import Text
from trimaran.serving.triton import installation

GROUPS = ("chosen", "passed", "baselines", "rejected")


@dataclass(frozen=True)
class SuiteOptions:
    # Real texts for the scenarios, instead of the judging texts.
    texts: Path | None = None
    # Measure texts that are too long, cut as they would be served.
    truncate: bool = False
    # Continue a run that was cut.
    resume: bool = False
    # A running server for the served scenarios; without one a Triton is started.
    target: ServedTarget | None = None


def bench_suite(
    config: DeployConfig,
    suite: Suite,
    options: SuiteOptions,
    *,
    store: Store,
    progress: Progress,
    command: Sequence[str],
) -> tuple[Report, Mapping[str, Path]]:
    """The report of the whole suite. A run that is cut writes what it has, marked as cut, and raises the reason."""
    _refuse_unknown_candidates(suite)
    _require_tools(suite, options)
    if not config.candidates:
        config = config.model_copy(update={"candidates": suite.candidates})
    plan = plan_deployment(config)
    require_writable(plan.report)
    own_texts = texts_for(plan.ref.task, "judging", options.texts) if options.texts else None
    conditions = {
        "suite": suite.digest[:16],
        "model": plan.ref.digest[:16],
        "level": plan.config.fidelity,
        "threads": str(plan.config.threads),
        "texts": digest_of_texts(own_texts or plan.judging)[:16],
        "data": plan.data.digest[:16] if plan.data else "none",
        "machine": digest_of(capture().model_dump(mode="json"))[:16],
    }
    state = begin(plan.report, suite.name, conditions, resume=options.resume)
    save(state, plan.report)
    run = DeployRun(plan, store, progress)
    reference, graph = export_model(plan.ref, plan.profile, store=store, progress=progress, exporter=config.exporter)
    texts, source = suite_texts(reference, plan, own_texts, suite.texts, truncate=options.truncate)
    answers = eager_answers(run, reference)
    outcomes = make_and_prove_candidates(run, graph, lambda: answers)
    rows = baselines(suite.baselines)
    qualities = judge_baselines(run, reference, rows, answers.judging)
    # A suite measures anew. It reuses an earlier measurement only when it continues that run.
    measuring = replace(run, store=Store(store.root, force=not options.resume))
    measured = measure_candidates(measuring, reference, outcomes, effort=suite.effort, baselines=rows)
    report = make_report(plan, reference, outcomes, measured, command, baselines=rows, baseline_qualities=qualities)
    if measured.busy:  # the scenarios would be disturbed as well; --resume takes them up
        return report, write_reports(report, plan.report)
    entries = entries_of(reference, outcomes, report, suite)
    walk = Walk(plan, suite, report, entries, texts, source, options.target, graph.entry_path)
    return walk.run(state, progress)


def suite_texts(
    reference: Artifact, plan: DeployPlan, own: Sequence[Text] | None, count: int, *, truncate: bool
) -> tuple[tuple[Text, ...], str]:
    """The user's texts, or the first judging texts that fit the profile. Raises UsageError for texts that do not."""
    limit = plan.profile.sequence.maximum
    texts: tuple[Text, ...] = tuple(own) if own is not None else plan.judging
    lengths = untruncated_lengths(reference, list(texts))
    too_long = [length for length in lengths if length > limit]
    if own is None:
        fitting = tuple(text for text, length in zip(texts, lengths, strict=True) if length <= limit)
        return (fitting or texts)[:count], "judging texts"
    if too_long and not truncate:
        raise UsageError(
            f"{len(too_long)} of {len(texts)} texts are longer than the profile: the longest has {max(too_long)} "
            f"tokens, the profile takes {limit}.",
            hint="Give --sequence a larger maximum, or --truncate to measure them cut as they would be served.",
        )
    return texts[:count], "the given texts"


def entries_of(
    reference: Artifact, outcomes: Sequence[CandidateOutcome], report: Report, suite: Suite
) -> dict[str, list[RaceEntry]]:
    """The contenders by each name that a scenario may ask for, groups included."""
    made = {outcome.candidate.name: entry_of(outcome) for outcome in outcomes if isinstance(outcome, Judged)}
    running = [entry for entry in baseline_entries(reference, baselines(suite.baselines)) if _ran(report, entry.name)]
    verdicts = {row.name: row.verdict for row in report.candidates}
    return {
        REFERENCE: [RaceEntry(REFERENCE, reference)],
        "baselines": running,
        **{entry.name: [entry] for entry in running},
        **{name: [entry] for name, entry in made.items()},
        "chosen": [entry for name, entry in made.items() if verdicts[name] == "chosen"],
        "passed": [entry for name, entry in made.items() if verdicts[name] in ("chosen", "passed")],
        "rejected": [entry for name, entry in made.items() if verdicts[name] == "rejected"],
    }


def _ran(report: Report, name: str) -> bool:
    return any(row.name == name and row.verdict == "baseline" for row in report.baselines)


def _require_tools(suite: Suite, options: SuiteOptions) -> None:
    """Raises UnavailableError for what served scenarios need and this machine lacks, before any work."""
    if any(unit.at == "served" for unit in suite.units):
        driver()
        if options.target is None:
            installation.find()


def _refuse_unknown_candidates(suite: Suite) -> None:
    candidates(suite.candidates)
    known = (REFERENCE, *GROUPS, *BASELINES, *CANDIDATES)
    for settings in suite.scenarios:
        refuse_unknown(settings.candidates, known, where=f"the candidates of {settings.scenario} in suite {suite.name}")
