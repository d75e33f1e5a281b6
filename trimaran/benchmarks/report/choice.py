"""Which candidate to deploy, and one sentence for each of the others why it was not chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimaran.benchmarks.measure.baselines import Baseline, runs_as
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.measure.runner import ContenderOutcome
from trimaran.benchmarks.measure.steadiness import beside_words
from trimaran.benchmarks.report.figures import decisive, find, rows_per_second, score, speedups
from trimaran.benchmarks.report.preference import Preference, loss, preferred, truest
from trimaran.benchmarks.report.proof_sentence import proof_sentence
from trimaran.benchmarks.report.report import UNSERVED, CandidateRow, ReportVerdict
from trimaran.benchmarks.report.wording import ROWS_WORDS, broken_words, count, gate_words, interval, listed, times
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Level, Objective
from trimaran.core.errors import ToolError
from trimaran.core.samples import Shape
from trimaran.core.spec import Precision, ShapeProfile
from trimaran.judging.judgement import Quality
from trimaran.judging.sensitivity import KEY, Sensitivity
from trimaran.judging.stats import Ratio, separated


class RaceChoice(NamedTuple):
    """Every candidate with its final verdict, and the verdict of the race."""

    rows: tuple[CandidateRow, ...]
    verdict: ReportVerdict


def judged_row(
    name: str,
    artifact: Artifact,
    quality: Quality | None,
    *,
    outcome: ContenderOutcome | None = None,
    environment: Mapping[str, str] | None = None,
) -> CandidateRow:
    """A candidate that ran: passed, rejected with each broken gate, or failed while it was measured.

    Without a quality it is the reference, which is true by definition.
    """
    verdict, reason = "passed", "It keeps every gate."
    if quality is None:
        verdict, reason = "reference", "What the others are compared with."
    if outcome and outcome.failure:
        verdict, reason = "failed", _sentence(outcome.failure)
    if quality and not quality.holds:
        # It is measured for the plots only, so it stays rejected even where measuring failed.
        verdict, reason = "rejected", broken_sentence(quality)
    sensitivity = Sensitivity.model_validate(artifact.details[KEY]) if KEY in artifact.details else None
    if verdict == "rejected" and sensitivity and sensitivity.stopped == "budget":
        reason = f"{reason} Its search was cut after {sensitivity.budget_s:.0f} s; --budget gives it more time."
    return CandidateRow(
        name=name,
        backend=artifact.backend,
        precision=artifact.precision,
        verdict=verdict,
        reason=reason,
        artifact=artifact.digest,
        quality=quality,
        # The reference's artifact only points at the user's weights.
        size_bytes=artifact.size_bytes if quality else None,
        peak_memory_bytes=(outcome and outcome.peak_memory_bytes) or (quality and quality.peak_memory_bytes) or None,
        load_s=outcome.load_s if outcome else None,
        execution_environment={**artifact.execution_environment, **(environment or {})},
        sensitivity=sensitivity,
    )


def broken_sentence(quality: Quality) -> str:
    """Every broken gate with its number and its limit."""
    text = "; ".join(broken_words(check) for check in quality.broken)
    return _sentence(text[:1].upper() + text[1:])


def failed_row(name: str, backend: str, precision: Precision, error: Exception | str) -> CandidateRow:
    """A candidate that could not be made or run; the reason carries the signal's or the limit's name."""
    return CandidateRow(name=name, backend=backend, precision=precision, verdict="failed", reason=_sentence(str(error)))


def stopped_row(name: str, backend: str, precision: Precision, reason: str) -> CandidateRow:
    """A candidate that was not made to the end, because it could not have won."""
    return CandidateRow(name=name, backend=backend, precision=precision, verdict="stopped", reason=_sentence(reason))


def baseline_row(
    reference: Artifact, row: Baseline, outcome: ContenderOutcome | None, quality: Quality | None = None
) -> CandidateRow:
    """Another setting of the same model: a baseline, or failed with the reason."""
    failure = f"It cannot run here: {why}" if (why := row.why_not()) else outcome.failure if outcome else None
    return CandidateRow(
        name=row.name,
        backend=reference.backend,
        precision=row.precision,
        verdict="failed" if failure else "baseline",
        reason=_sentence(failure or "Another setting of the same PyTorch model, not a candidate"),
        artifact=reference.digest,
        quality=quality,
        peak_memory_bytes=(outcome and outcome.peak_memory_bytes) or None,
        load_s=outcome.load_s if outcome else None,
        runs_as=runs_as(reference, row),
    )


def choose(
    rows: Sequence[CandidateRow],
    measurements: Sequence[Measurement],
    *,
    reference: CandidateRow,
    model: str,
    level: Level,
    objective: Objective,
    profile: ShapeProfile,
    eager: str = "eager PyTorch",
) -> RaceChoice:
    """The fastest of the passed rows at the shapes that the objective rests on, as `preference.py` has it.

    `eager` is what its sentence calls the reference.

    A passed row without samples at those shapes fails. Raises ToolError when the reference has none.
    """
    shapes = decisive(profile, objective)
    if any(find(measurements, reference.name, shape) is None for shape in shapes):
        raise ToolError(f"{reference.name} was not measured, so there is nothing to compare with. {reference.reason}")
    scores = {
        row.name: ratio
        for row in rows
        if row.verdict == "passed" and (ratio := score(measurements, row.name, reference=reference.name, shapes=shapes))
    }
    rows = [
        row.model_copy(update={"verdict": "failed", "reason": "It was not measured."})
        if row.verdict == "passed" and row.name not in scores
        else row
        for row in rows
    ]
    if not scores:
        return RaceChoice(tuple(rows), _nothing_passed(rows, level))
    ratios = {name: speedups(measurements, name, reference=reference.name) for name in scores}
    preference = preferred(rows, measurements, scores=scores, ratios=ratios, shapes=shapes)
    best = preference.best
    losses = {row.name: loss(row.quality) for row in rows}
    judged = tuple(
        row.model_copy(
            update={
                "verdict": "chosen" if row.name == best else "passed",
                "reason": _chosen_reason(preference, losses, ratios[best], shapes, scores[best])
                if row.name == best
                else _passed_reason(row.name, preference, losses, ratios[row.name], shapes),
            }
        )
        if row.name in scores
        else row
        for row in rows
    )
    speed = speed_sentence(
        best,
        model=model,
        level=level,
        measurements=measurements,
        ratios=ratios[best],
        shapes=shapes,
        overall=scores[best],
        objective=objective,
        eager=eager,
    )
    verdict = ReportVerdict(
        chosen=best,
        difference=separated(scores[best]),
        speed=speed,
        truth=_truth_sentence(judged, best, level, len(preference.equally_fast) - 1),
        proof=proof_sentence(_quality_of(judged, best)),
    )
    return RaceChoice(judged, verdict)


def choose_unmeasured(rows: Sequence[CandidateRow], *, level: Level, why: str) -> RaceChoice:
    """The truest of the passed rows, because a busy machine did not let their speed be measured."""
    best = truest(rows)
    if best is None:
        return RaceChoice(tuple(rows), _nothing_passed(rows, level))
    reason = "The truest that keeps every gate; its speed was not measured."
    judged = tuple(
        row.model_copy(update={"verdict": "chosen", "reason": reason})
        if row.name == best
        else row.model_copy(update={"reason": "It keeps every gate; its speed was not measured."})
        if row.verdict == "passed"
        else row
        for row in rows
    )
    speed = (
        f"Not measured: {why}; run again, or with --wait-quiet. {best} is the truest that keeps "
        f"every {level} gate, so it is the one to deploy until then."
    )
    truth = _truth_sentence(judged, best, level, equally_fast=0, slower="not measured")
    proof = proof_sentence(_quality_of(judged, best))
    return RaceChoice(judged, ReportVerdict(chosen=best, difference=None, speed=speed, truth=truth, proof=proof))


def speed_sentence(
    best: str,
    *,
    model: str,
    level: Level,
    measurements: Sequence[Measurement],
    ratios: Mapping[Shape, Ratio],
    shapes: Sequence[Shape],
    overall: Ratio,
    objective: Objective,
    eager: str = "eager PyTorch",
) -> str:
    threads = measurements[0].threads
    where = listed([_at(shape, ratios[shape]) for shape in shapes])
    timed = find(measurements, best, shapes[0])
    rate = f", {rows_per_second(timed):.0f} rows/s" if timed and objective == "throughput" else ""
    on = f"on {count(threads, 'thread')}{beside_words(measurements)}"
    match separated(overall):
        case "faster":
            return f"{best} runs {model} faster than {eager}: {where}{rate}, {on}."
        case "slower":
            return (
                f"Nothing that keeps the {level} gates beats {eager} here; "
                f"{best} comes closest and is slower: {where}{rate}, {on}."
            )
    return (
        f"Nothing that keeps the {level} gates is measurably faster than {eager} here; "
        f"{best} is the best of them: {where}{rate}, {on}."
    )


def _at(shape: Shape, ratio: Ratio) -> str:
    doubt = ", unclear" if separated(ratio) == "no difference" else ""
    return f"{times(ratio)} at {shape} ({interval(ratio)}{doubt})"


def _truth_sentence(
    rows: Sequence[CandidateRow], best: str, level: Level, equally_fast: int, slower: str = "slower"
) -> str:
    quality = _quality_of(rows, best)
    proof = "; ".join(gate_words(check) for check in quality.checks)
    served = f"served with {ROWS_WORDS[quality.rows]}"
    others = _others(rows, equally_fast, slower)
    return f"Over {count(quality.n, 'text')} it keeps every {level} gate ({proof}), {served}; {others}."


def _quality_of(rows: Sequence[CandidateRow], name: str) -> Quality:
    quality = next(row.quality for row in rows if row.name == name)
    assert quality is not None
    return quality


def _others(rows: Sequence[CandidateRow], equally_fast: int, slower: str) -> str:
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("passed", *UNSERVED)}
    named = {
        "passed and as fast, as far as could be told": equally_fast,
        f"passed and {slower}": counts.pop("passed") - equally_fast,
        "stopped early": counts.pop("stopped"),
        **counts,
    }
    parts = [f"{number} {words}" for words, number in named.items() if number]
    return f"of the others, {listed(parts)}" if parts else "there were no others"


def _nothing_passed(rows: Sequence[CandidateRow], level: Level) -> ReportVerdict:
    rejected = [row for row in rows if row.quality and row.verdict == "rejected"]
    speed = f"No candidate keeps the {level} gates, so there is nothing to deploy."
    if not rejected:
        return ReportVerdict(chosen=None, difference=None, speed=speed, truth="None of them ran to the end.")
    closest = min(rejected, key=lambda row: len(row.quality.broken) if row.quality else 0)
    return ReportVerdict(
        chosen=None, difference=None, speed=speed, truth=f"{closest.name} came closest: {closest.reason}"
    )


def _chosen_reason(
    preference: Preference,
    losses: Mapping[str, float],
    ratios: Mapping[Shape, Ratio],
    shapes: Sequence[Shape],
    overall: Ratio,
) -> str:
    best, tied = preference.best, [name for name in preference.equally_fast if name != preference.best]
    eager = {"faster": "", "slower": ", though slower than eager", "no difference": ", though no faster than eager"}
    why = "The fastest that keeps every gate"
    if any(losses[name] > losses[best] for name in tied):
        why = f"It keeps every gate and is truer than {listed(tied)}, from which speed could not tell it apart"
    return f"{why}{eager[separated(overall)]}. {over_eager(ratios, shapes)}"


def _passed_reason(
    name: str,
    preference: Preference,
    losses: Mapping[str, float],
    ratios: Mapping[Shape, Ratio],
    shapes: Sequence[Shape],
) -> str:
    best = preference.best
    relation = f", slower than {best}"
    if name in preference.slower_than_eager:
        shape, ratio = preference.slower_than_eager[name]
        relation = f", but is slower than eager at {shape} ({times(ratio)}), and {best} is not"
    elif name in preference.equally_fast:
        truer = ", which is truer" if losses[best] < losses[name] else ""
        relation = f", with no clear difference in speed from {best}{truer}"
    return f"It keeps every gate{relation}. {over_eager(ratios, shapes)}"


def over_eager(ratios: Mapping[Shape, Ratio], shapes: Sequence[Shape]) -> str:
    return f"Over eager: {listed([f'{times(ratios[shape])} at {shape}' for shape in shapes])}."


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
