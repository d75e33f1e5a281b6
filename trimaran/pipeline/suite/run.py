"""A suite over a model: everything is checked, candidates are made, judged and raced, then the scenarios are walked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.benchmarks.measure.baselines import BASELINES, baseline_entries, baselines
from trimaran.benchmarks.measure.runner import Entry
from trimaran.benchmarks.report.report import REFERENCE, Report
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
from trimaran.pipeline.line import export_stage
from trimaran.pipeline.plan import Plan, plan_deployment, require_writable, texts_for
from trimaran.pipeline.proving import Contender, eager_on_data, try_candidates
from trimaran.pipeline.race import eager_answers, entry_of, judge_baselines, measure_stage, write_up
from trimaran.pipeline.suite.served import Target
from trimaran.pipeline.suite.walk import Walk
from trimaran.quantize.candidates import CANDIDATES, candidates
from trimaran.runtime.text import Text
from trimaran.serving.triton import installation

GROUPS = ("chosen", "passed", "baselines", "rejected")


@dataclass(frozen=True)
class Wanted:
    """What the user said beside the suite. With `target`, served scenarios ask that server and none is started."""

    texts: Path | None = None
    truncate: bool = False
    resume: bool = False
    target: Target | None = None


def bench_suite(
    config: DeployConfig, suite: Suite, wanted: Wanted, *, store: Store, progress: Progress, command: Sequence[str]
) -> tuple[Report, Mapping[str, Path]]:
    """The report of the whole suite. A run that is cut writes what it has, marked, and raises why."""
    _refuse_unknown_candidates(suite)
    _require_tools(suite, wanted)
    if not config.candidates:
        config = config.model_copy(update={"candidates": suite.candidates})
    plan = plan_deployment(config)
    require_writable(plan.report)
    asked_texts = texts_for(plan.ref.task, "judging", wanted.texts) if wanted.texts else None
    conditions = {
        "suite": suite.digest[:16],
        "model": plan.ref.digest[:16],
        "level": plan.config.fidelity,
        "threads": str(plan.config.threads),
        "texts": digest_of_texts(asked_texts or plan.judging)[:16],
        "data": plan.data.digest[:16] if plan.data else "none",
        "machine": digest_of(capture().model_dump(mode="json"))[:16],
    }
    state = begin(plan.report, suite.name, conditions, resume=wanted.resume)
    save(state, plan.report)
    reference, graph = export_stage(plan.ref, plan.profile, store=store, progress=progress, exporter=config.exporter)
    texts, source = suite_texts(reference, plan, asked_texts, suite.texts, truncate=wanted.truncate)
    answers = eager_answers(plan, reference, progress)
    on_data = eager_on_data(plan, reference, progress)
    contenders = try_candidates(plan, graph, lambda: answers, store=store, progress=progress, on_data=on_data)
    rows = baselines(suite.baselines)
    qualities = judge_baselines(plan, reference, rows, answers, store=store, progress=progress)
    # A suite measures: what an earlier run found is only used when that run is taken up.
    shelf = Store(store.root, force=not wanted.resume)
    measured = measure_stage(
        plan, reference, contenders, store=shelf, progress=progress, effort=suite.effort, baselines=rows
    )
    report = write_up(plan, reference, contenders, measured, command, baselines=rows, baseline_qualities=qualities)
    entries = entries_of(reference, contenders, report, suite)
    walk = Walk(plan, suite, report, entries, texts, source, wanted.target, graph.entry_path)
    return walk.run(state, progress)


def suite_texts(
    reference: Artifact, plan: Plan, asked: Sequence[Text] | None, count: int, *, truncate: bool
) -> tuple[tuple[Text, ...], str]:
    """The user's texts, or the first judging texts that fit the profile. Raises UsageError for texts that do not."""
    limit = plan.profile.sequence.maximum
    given: tuple[Text, ...] = tuple(asked) if asked is not None else plan.judging
    lengths = untruncated_lengths(reference, list(given))
    too_long = [length for length in lengths if length > limit]
    if asked is None:
        fitting = tuple(text for text, length in zip(given, lengths, strict=True) if length <= limit)
        return (fitting or given)[:count], "judging texts"
    if too_long and not truncate:
        raise UsageError(
            f"{len(too_long)} of {len(given)} texts are longer than the profile: the longest has {max(too_long)} "
            f"tokens, the profile takes {limit}.",
            hint="Give --sequence a larger maximum, or --truncate to measure them cut as they would be served.",
        )
    return given[:count], "the given texts"


def entries_of(
    reference: Artifact, contenders: Sequence[Contender], report: Report, suite: Suite
) -> dict[str, list[Entry]]:
    """Who is meant by each name that a scenario may ask for."""
    made = {contender.row.name: entry for contender in contenders if (entry := entry_of(contender))}
    running = [entry for entry in baseline_entries(reference, baselines(suite.baselines)) if _ran(report, entry.name)]
    verdicts = {row.name: row.verdict for row in report.candidates}
    return {
        REFERENCE: [Entry(REFERENCE, reference)],
        "baselines": running,
        **{entry.name: [entry] for entry in running},
        **{name: [entry] for name, entry in made.items()},
        "chosen": [entry for name, entry in made.items() if verdicts[name] == "chosen"],
        "passed": [entry for name, entry in made.items() if verdicts[name] in ("chosen", "passed")],
        "rejected": [entry for name, entry in made.items() if verdicts[name] == "rejected"],
    }


def _ran(report: Report, name: str) -> bool:
    return any(row.name == name and row.verdict == "baseline" for row in report.baselines)


def _require_tools(suite: Suite, wanted: Wanted) -> None:
    """What served scenarios need is asked for before the work, not after it."""
    if any(unit.at == "served" for unit in suite.units):
        driver()
        if wanted.target is None:
            installation.find()


def _refuse_unknown_candidates(suite: Suite) -> None:
    candidates(suite.candidates)
    known = (REFERENCE, *GROUPS, *BASELINES, *CANDIDATES)
    for asked in suite.scenarios:
        refuse_unknown(asked.candidates, known, where=f"the candidates of {asked.scenario} in suite {suite.name}")
