"""What the harness does to what it measures: its floor, its cost compared with a bare loop, and A against A."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimaran.benchmarks.measure.runner import Effort, RaceEntry, measure
from trimaran.core.errors import TrimaranError
from trimaran.core.isolation import Worker
from trimaran.core.pinning import pin
from trimaran.core.progress import Step
from trimaran.core.samples import Round, Shape
from trimaran.core.spec import Frozen
from trimaran.judging.probe import serving_call, timed_calls
from trimaran.judging.stats import Ratio, SpeedDifference, median, ratio_of_means, separated, speedup

CALL_NS = 1_000_000
ROUNDS = 9
CALLS = 60
OVERHEAD_LIMIT = 0.02
_DEADLINE_S = 60.0


class Twins(Frozen):
    """One engine entered three times in the same interleaved rounds."""

    candidate: str
    shape: Shape
    # Twice the same, and once called twice for each sample.
    first: tuple[Round, ...]
    second: tuple[Round, ...]
    doubled: tuple[Round, ...]


class HarnessCheck(Frozen):
    """What the harness does to what it measures: its floor, its cost, and whether it tells an engine from itself."""

    # A session that does nothing, measured like any other.
    null: tuple[Round, ...]
    # A call of about a millisecond in a plain loop; one sample a round: the loop's time over its calls.
    bare: tuple[Round, ...]
    # The same call under the harness.
    timed: tuple[Round, ...]
    twins: Twins | None = None


class Overhead(NamedTuple):
    """What the harness adds to a call."""

    # Time of the call under the harness over its time in a bare loop.
    ratio: Ratio
    # How long the call takes in a bare loop.
    call_ns: float

    @property
    def holds(self) -> bool:
        return self.ratio.median <= 1 + OVERHEAD_LIMIT


def overhead(check: HarnessCheck) -> Overhead | None:
    if not check.bare or not check.timed:
        return None
    bare = tuple(turn.samples_ns for turn in check.bare)
    ratio = ratio_of_means(tuple(turn.samples_ns for turn in check.timed), bare)
    return Overhead(ratio, float(np.median([turn[0] for turn in bare])))


def floor_ns(check: HarnessCheck) -> int | None:
    """The median of a session that does nothing: below this nothing can be told apart."""
    samples = [sample for turn in check.null for sample in turn.samples_ns]
    return median(samples) if samples else None


def twins_verdicts(twins: Twins) -> tuple[tuple[Ratio, SpeedDifference], tuple[Ratio, SpeedDifference]]:
    """A against A, and A against itself called twice: "no difference" and "slower" when the harness is right."""
    first, second, doubled = (
        tuple(turn.samples_ns for turn in rounds) for rounds in (twins.first, twins.second, twins.doubled)
    )
    again, twice = speedup(first, second), speedup(first, doubled)
    return (again, separated(again)), (twice, separated(twice))


def harness_sentences(check: HarnessCheck) -> tuple[str, ...]:
    """What the harness costs, and whether it tells an engine from itself, as facts for a report."""
    facts = []
    if (floor := floor_ns(check)) is not None:
        facts.append(f"A session that does nothing takes {floor / 1e3:.3g} µs under the harness: its floor.")
    if cost := overhead(check):
        facts.append(
            f"A call of {cost.call_ns / 1e6:.3g} ms takes {cost.ratio.median:.4f} times ({cost.ratio.low:.4f}–"
            f"{cost.ratio.high:.4f}) as long under the harness as in a bare loop."
        )
    if check.twins:
        (again, same), (twice, doubled) = twins_verdicts(check.twins)
        facts.append(
            f"The same engine against itself: {same} ({again.low:.2f}–{again.high:.2f}). Called twice for once: "
            f"{doubled} ({twice.low:.2f}–{twice.high:.2f})."
        )
    return tuple(facts)


def warnings(check: HarnessCheck) -> tuple[str, ...]:
    """A sentence for each thing that the harness got wrong; all other figures of the report are in doubt by as much."""
    sentences = []
    cost = overhead(check)
    if cost and cost.ratio.low > 1 + OVERHEAD_LIMIT:
        sentences.append(
            f"The harness made a call of {cost.call_ns / 1e6:.2f} ms {cost.ratio.median - 1:.1%} longer than a bare "
            f"loop; {OVERHEAD_LIMIT:.0%} is its limit."
        )
    elif cost and not cost.holds:
        sentences.append(
            f"What the harness itself costs could not be told: a call took {cost.ratio.low:.2f} to "
            f"{cost.ratio.high:.2f} times as long as in a bare loop."
        )
    if check.twins:
        (again, same), (twice, other) = twins_verdicts(check.twins)
        if same != "no difference":
            sentences.append(
                f"{check.twins.candidate} came out as {same} than itself ({again.median:.3f} times, "
                f"{again.low:.3f}–{again.high:.3f}): differences of that size mean nothing in this report."
            )
        if other != "slower":
            sentences.append(
                f"{check.twins.candidate} called twice did not come out as slower ({twice.low:.3f}–{twice.high:.3f}): "
                "the machine was too noisy to tell a factor of two."
            )
    return tuple(sentences)


def check_harness(*, cores: Sequence[int] = (), step: Step | None = None) -> HarnessCheck:
    """Null session and bare loop, in a child like every contender's."""
    kinds = {"null": Bench.null, "bare": Bench.bare, "timed": Bench.timed}
    rounds_by_kind: dict[str, list[Round]] = {kind: [] for kind in kinds}
    generator = np.random.default_rng(0)
    with Worker() as worker:
        bench = worker.hold(Bench, _DEADLINE_S, cores=list(cores), call_ns=CALL_NS)
        for done in range(ROUNDS):
            if step:
                step.advance(done, ROUNDS, "bare loop against harness")
            for kind in generator.permutation(list(rounds_by_kind)):
                answer = bench.call(kinds[str(kind)], _DEADLINE_S, calls=CALLS)
                rounds_by_kind[str(kind)].append(Round.model_validate(answer))
    return HarnessCheck(**{kind: tuple(rounds) for kind, rounds in rounds_by_kind.items()})


def measure_twins(
    entry: RaceEntry, shape: Shape, *, threads: int, cores: Sequence[int], effort: Effort, step: Step | None = None
) -> Twins:
    """The same engine in three processes: alike, alike, and called twice a sample."""
    names = {"first": 1, "second": 1, "doubled": 2}
    entries = [
        RaceEntry(name, entry.artifact, entry.rows, entry.environment, repeat=calls) for name, calls in names.items()
    ]
    measured = measure(entries, (shape,), threads=threads, cores=cores, effort=effort, step=step)
    for outcome in measured.outcomes:
        if outcome.failure:
            raise TrimaranError(f"{entry.name} did not get through the harness's own check: {outcome.failure}")
    rounds = {measurement.candidate: measurement.rounds for measurement in measured.measurements}
    return Twins(candidate=entry.name, shape=shape, **rounds)


class Bench:
    """Lives in an `isolation.Worker`: a session that does nothing, and a call of a known length."""

    def __init__(self, cores: Sequence[int], call_ns: int) -> None:
        pin(tuple(cores))
        self._work = work_of(call_ns)
        self._inputs = {"input_ids": np.ones((1, 8), np.int64)}

    def null(self, calls: int) -> dict[str, list[int]]:
        nothing: Callable[[Any], Any] = lambda inputs: inputs  # noqa: E731
        return self._timed(serving_call(nothing, self._inputs, "padded"), calls)

    def timed(self, calls: int) -> dict[str, list[int]]:
        return self._timed(serving_call(lambda inputs: self._work(), self._inputs, "padded"), calls)

    def bare(self, calls: int) -> dict[str, list[int]]:
        """One sample: the time of the whole loop over its calls."""
        work = self._work
        work()
        begun_ns = time.perf_counter_ns()
        for _ in range(calls):
            work()
        return {"samples_ns": [(time.perf_counter_ns() - begun_ns) // calls]}

    def _timed(self, call: Callable[[], object], calls: int) -> dict[str, list[int]]:
        return timed_calls(call, minimum_samples=calls, minimum_time_s=0.0, warmup_samples=1)


def work_of(call_ns: int) -> Callable[[], Any]:
    """A call of about this length that works rather than waits: waiting for the clock would hide the overhead."""
    values = np.random.default_rng(0).random(4096)

    def once() -> Any:
        return np.sort(values)

    spent = timed_calls(once, minimum_samples=50, minimum_time_s=0.0, warmup_samples=10)["samples_ns"]
    times = max(1, round(call_ns / median(spent)))

    def work() -> Any:
        for _ in range(times):
            once()

    return work
