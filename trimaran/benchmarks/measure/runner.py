"""Times candidates so that they can be compared: a process each, interleaved rounds, only one busy at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from pydantic import model_validator

from trimaran.benchmarks.measure.contenders import opener_in_children
from trimaran.benchmarks.measure.halving import Times, beaten, leaders
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.measure.quiet import CpuWatch
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.errors import TrimaranError, UsageError
from trimaran.core.progress import Step
from trimaran.core.samples import Round, Shape
from trimaran.core.spec import Frozen
from trimaran.judging.stats import FEWEST_ROUNDS, median

# A turn is repeated where the fixed computation beside it took longer than its quiet value by this share.
YARDSTICK_MARGIN = 0.05


@dataclass(frozen=True)
class RaceEntry:
    """One contender of a race."""

    name: str
    artifact: Artifact
    # How rows may share a call, as proven; eager PyTorch gets its fastest way, `padded`.
    rows: Rows = "padded"
    # Variables of its process.
    environment: dict[str, str] = field(default_factory=dict)
    # How the artifact is opened, such as a baseline's precision.
    options: dict[str, Any] = field(default_factory=dict)
    # Runs only `losing_rounds`, because nothing is decided on it.
    brief: bool = False
    # May be chosen, and stops early when another has beaten it.
    competes: bool = False
    # Calls that make one sample.
    repeat: int = 1


class Effort(Frozen):
    """How much to measure."""

    rounds: int = 9
    # These always run: fewer have no 95 % interval. After them, shapes that no longer fit the budget are skipped, the
    # costliest first.
    minimum_rounds: int = FEWEST_ROUNDS
    # After these, a contender that is clearly beaten stops.
    losing_rounds: int = 2
    # Of one turn: one contender at one shape in one round.
    minimum_samples: int = 1
    minimum_time_s: float = 0.15
    warmup_samples: int = 1
    warmup_time_s: float = 0.05
    # A shape whose call takes this long is warmed up in the first round only: caches are a small part of such a call.
    long_call_s: float = 0.1
    # Of the race without the leaders' further rounds.
    budget_s: float = 26.0
    # Further rounds of the leaders alone at the deciding shapes, where those before did not tell them apart. All of
    # them run before speeds are compared again: two looks, each wrong on one side in 2.5 % at most.
    leader_rounds: int = 12
    # After it no further round of the leaders begins.
    leader_budget_s: float = 20.0
    # Of one call to a contender's process.
    deadline_s: float = 180.0
    # Of the random order within a round.
    seed: int = 0
    # A turn is void if its threads waited longer for a CPU, as a share of its time. None: no turn is void.
    delay_limit: float | None = None
    # How often a void turn is repeated at once. A round with a turn that stays void does not count.
    repeats: int = 2
    # After so many rounds that do not count, measuring ends.
    void_rounds: int = 3

    @model_validator(mode="before")
    @classmethod
    def _no_more_than_all(cls, settings: Any) -> Any:
        """A limit of few rounds also lowers the minimum, unless the minimum is set too."""
        if isinstance(settings, dict) and "rounds" in settings and "minimum_rounds" not in settings:
            return {**settings, "minimum_rounds": min(FEWEST_ROUNDS, settings["rounds"])}
        return settings

    @model_validator(mode="after")
    def _possible(self) -> Effort:
        if (
            not 1 <= self.minimum_rounds <= self.rounds
            or self.losing_rounds < 1
            or self.minimum_samples < 1
            or self.warmup_samples < 0
        ):
            raise UsageError(
                f"Measuring wants 1 <= minimum rounds <= rounds, a losing round and at least one sample, found "
                f"{self.minimum_rounds} <= {self.rounds}, {self.losing_rounds} and {self.minimum_samples}."
            )
        return self


class ContenderOutcome(Frozen):
    """What became of one contender's process."""

    candidate: str
    # Why it died or refused.
    failure: str | None
    peak_memory_bytes: int
    load_s: float | None
    # Why it was not measured further.
    stopped: str = ""


class Measured(Frozen):
    """The result of a race. A contender that failed keeps the rounds it finished."""

    measurements: tuple[Measurement, ...]
    outcomes: tuple[ContenderOutcome, ...]
    # Share of the cores that other processes used during the race.
    others_share: float | None = None
    # Other work delayed too many turns. There are no measurements then.
    busy: bool = False
    # How long the threads of turns that stayed void waited for a CPU, as a share of the turn: the median of them.
    delayed: float | None = None

    def outcome(self, candidate: str) -> ContenderOutcome:
        return next(outcome for outcome in self.outcomes if outcome.candidate == candidate)


class TimedProbe(Protocol):
    """What measuring needs of an opened contender; `ProbeProcess` is one."""

    @property
    def peak_memory_bytes(self) -> int: ...

    load_s: float

    def measure(
        self,
        shape: Shape,
        rows: Rows,
        *,
        minimum_samples: int,
        minimum_time_s: float,
        warmup_samples: int,
        warmup_time_s: float,
        repeat: int,
    ) -> Round: ...

    def rest(self) -> None: ...


Opener = Callable[[RaceEntry], AbstractContextManager[TimedProbe]]


def measure(
    entries: Sequence[RaceEntry],
    shapes: Sequence[Shape],
    *,
    threads: int,
    cores: Sequence[int] = (),
    effort: Effort | None = None,
    step: Step | None = None,
    open_probe: Opener | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    deciding: Sequence[Shape] = (),
) -> Measured:
    """Raw samples of every contender at every shape. One that dies is reported, and the others go on.

    A contender that competes stops early when another has beaten it at all `deciding` shapes. Leaders that are not
    told apart there get further rounds.
    """
    effort = effort or Effort()
    names = [entry.name for entry in entries]
    if len(set(names)) != len(names) or not entries or not shapes:
        raise UsageError(f"Measuring wants contenders with distinct names and at least one shape, found {names}.")
    race = _Race(entries, shapes, threads, effort, step)
    begun_s = clock_s()
    with ExitStack() as stack:
        opener = open_probe or opener_in_children(entries, threads, cores, effort.deadline_s, stack)
        race.open_all(lambda entry: stack.enter_context(opener(entry)))
        watch = CpuWatch(cores)
        generator = np.random.default_rng(effort.seed)
        turn_shapes = tuple(shapes)
        done = void = 0
        while done < effort.rounds and void < effort.void_rounds:
            taking_part = [
                entry.name
                for entry in entries
                if not race.stopped(entry.name) and not (entry.brief and done >= effort.losing_rounds)
            ]
            order = [taking_part[index] for index in generator.permutation(len(taking_part))]
            try:
                costs_s = race.run_round(done, order, turn_shapes, clock_s)
            except DelayedTurn:
                void += 1
                continue
            done += 1
            if done >= effort.losing_rounds:
                race.stop_beaten(deciding)
            if done >= effort.minimum_rounds:
                turn_shapes = affordable(costs_s, effort.budget_s - (clock_s() - begun_s))
            if not turn_shapes:
                break
        if done >= effort.minimum_rounds and deciding:
            race.run_leaders(done, deciding, generator, clock_s)
        others_share = watch.others_share()
    nothing = {"measurements": (), "busy": True} if done < effort.minimum_rounds else {}
    return race.result().model_copy(update={"others_share": others_share, **nothing})


class DelayedTurn(Exception):
    """A turn stayed void however often it was repeated."""


def affordable(costs_s: Mapping[Shape, float], left_s: float) -> tuple[Shape, ...]:
    """The shapes that together fit into the time left, in order; the costliest are skipped first."""
    kept: set[Shape] = set()
    for shape, cost_s in sorted(costs_s.items(), key=lambda pair: pair[1]):
        if cost_s > left_s:
            break
        left_s -= cost_s
        kept.add(shape)
    return tuple(shape for shape in costs_s if shape in kept)


class _Race:
    """The contenders that still run, and what each has shown so far."""

    def __init__(
        self, entries: Sequence[RaceEntry], shapes: Sequence[Shape], threads: int, effort: Effort, step: Step | None
    ) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._shapes, self._threads, self._effort, self._step = shapes, threads, effort, step
        self._running: dict[str, TimedProbe] = {}
        self._ended: dict[str, ContenderOutcome] = {}
        self._rounds: dict[tuple[str, Shape], list[Round]] = {(name, s): [] for name in self._entries for s in shapes}
        self._stopped: dict[str, str] = {}
        self._turns_done = 0
        self._quiet_yardstick_ns = float("inf")
        # A CPU that has two speeds on a quiet machine must not repeat every turn: one round's worth is the most.
        self._slow_repeats_left = len(self._entries) * len(shapes)
        self._delays: list[float] = []

    def open_all(self, open_probe: Callable[[RaceEntry], TimedProbe]) -> None:
        for name, entry in self._entries.items():
            self._advance(f"opening {name}")
            try:
                self._running[name] = open_probe(entry)
                self._running[name].rest()
            except TrimaranError as error:
                self._end(name, error)

    def run_round(
        self, number: int, order: Sequence[str], shapes: Sequence[Shape], clock_s: Callable[[], float]
    ) -> dict[Shape, float]:
        """One turn for each contender that still runs; returns the seconds that all turns of each shape took.

        A round in which a turn stays void raises DelayedTurn, and no contender keeps any of it.
        """
        costs_s = dict.fromkeys(shapes, 0.0)
        self._turns_done = number * len(self._entries)
        kept: list[tuple[str, Shape, Round]] = []
        for name in order:
            if name not in self._running:
                continue
            self._advance(f"round {number + 1}, {name}")
            turns: dict[Shape, Round] = {}
            try:
                for shape in shapes:
                    begun_s = clock_s()
                    turns[shape] = self._undisturbed_turn(name, shape)
                    costs_s[shape] += clock_s() - begun_s
                self._running[name].rest()
            except TrimaranError as error:
                # A contender that dies during a round keeps no part of that round.
                self._end(name, error)
                continue
            kept += [(name, shape, turn) for shape, turn in turns.items()]
            self._turns_done += 1
        for name, shape, turn in kept:
            self._rounds[name, shape].append(turn)
        return costs_s

    def stopped(self, name: str) -> bool:
        return name in self._stopped

    def stop_beaten(self, deciding: Sequence[Shape]) -> None:
        self._stopped |= beaten(self._competing_times(deciding))

    def run_leaders(
        self, done: int, deciding: Sequence[Shape], generator: np.random.Generator, clock_s: Callable[[], float]
    ) -> None:
        """Further rounds of those that the rounds before did not tell from the fastest, if there are any."""
        tied = leaders(self._competing_times(deciding))
        if len(tied) < 2:
            return
        until_s, void, number = clock_s() + self._effort.leader_budget_s, 0, 0
        while number < self._effort.leader_rounds and void < self._effort.void_rounds and clock_s() < until_s:
            order = [tied[index] for index in generator.permutation(len(tied))]
            try:
                self.run_round(done + number, order, deciding, clock_s)
            except DelayedTurn:
                void += 1
                continue
            number += 1

    def _competing_times(self, deciding: Sequence[Shape]) -> Times:
        return {
            name: {shape: self._rounds[name, shape] for shape in deciding}
            for name, entry in self._entries.items()
            if entry.competes and name in self._running and name not in self._stopped
        }

    def result(self) -> Measured:
        for name, probe in self._running.items():
            self._ended[name] = ContenderOutcome(
                candidate=name,
                failure=None,
                peak_memory_bytes=probe.peak_memory_bytes,
                load_s=probe.load_s,
                stopped=self._stopped.get(name, ""),
            )
        return Measured(
            measurements=tuple(
                Measurement(
                    candidate=name,
                    artifact=self._entries[name].artifact.digest,
                    shape=shape,
                    threads=self._threads,
                    rows=self._entries[name].rows,
                    rounds=tuple(rounds),
                )
                for (name, shape), rounds in self._rounds.items()
                if rounds
            ),
            outcomes=tuple(self._ended[name] for name in self._entries),
            delayed=statistics.median(self._delays) if self._delays else None,
        )

    def _undisturbed_turn(self, name: str, shape: Shape) -> Round:
        """A turn that nothing delayed. One at a slower CPU is repeated while repeats are left, and kept then."""
        turn, limit = self._turn(name, shape), self._effort.delay_limit
        if limit is None:
            return turn
        for _ in range(self._effort.repeats):
            slower = self._on_a_slower_cpu(turn) and self._slow_repeats_left > 0
            if not slower and (turn.delayed or 0.0) <= limit:
                break
            self._slow_repeats_left -= slower
            turn = self._turn(name, shape)
        if (turn.delayed or 0.0) > limit:
            self._delays.append(turn.delayed or 0.0)
            self._running[name].rest()
            raise DelayedTurn
        return turn

    def _on_a_slower_cpu(self, turn: Round) -> bool:
        if turn.yardstick_ns is None:
            return False
        self._quiet_yardstick_ns = min(self._quiet_yardstick_ns, turn.yardstick_ns)
        return turn.yardstick_ns > (1 + YARDSTICK_MARGIN) * self._quiet_yardstick_ns

    def _turn(self, name: str, shape: Shape) -> Round:
        effort, before = self._effort, self._rounds[name, shape]
        warm = bool(before) and median(before[-1].samples_ns) >= 1e9 * effort.long_call_s
        return self._running[name].measure(
            shape,
            self._entries[name].rows,
            minimum_samples=effort.minimum_samples,
            minimum_time_s=effort.minimum_time_s,
            warmup_samples=0 if warm else effort.warmup_samples,
            warmup_time_s=0.0 if warm else effort.warmup_time_s,
            repeat=self._entries[name].repeat,
        )

    def _end(self, name: str, error: TrimaranError) -> None:
        probe = self._running.pop(name, None)
        peak, load_s = (probe.peak_memory_bytes, probe.load_s) if probe else (0, None)
        self._ended[name] = ContenderOutcome(candidate=name, failure=str(error), peak_memory_bytes=peak, load_s=load_s)

    def _advance(self, what: str) -> None:
        if self._step:
            total = self._effort.rounds * len(self._entries)
            self._step.advance(min(self._turns_done, total), total, what)
