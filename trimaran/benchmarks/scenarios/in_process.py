"""Scenarios at the engine and from the text on: a process for each candidate, turns interleaved in random order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np

from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.results import ScenarioResult, TextsUsed
from trimaran.benchmarks.scenarios.settings import (
    MixedLengthsSettings,
    OfflineSettings,
    ShapeGridSettings,
    SingleStreamSettings,
    SuiteUnit,
)
from trimaran.core.corpus import digest_of_texts
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Step
from trimaran.core.samples import Round, Shape
from trimaran.judging.probe_process import ProbeProcess
from trimaran.runtime.text import Array, Text

DEADLINE_S = 300.0
ResultHead = dict[str, Any]
Turn = dict[str, Any]


class Probes:
    """The contenders' processes. Each is opened when first needed and kept open; one that died stays out."""

    def __init__(self, texts: Sequence[Text], *, source: str, threads: int, cores: Sequence[int]) -> None:
        self.texts, self._source, self.threads, self.cores = texts, source, threads, cores
        self._open: dict[str, tuple[ProbeProcess, TextsUsed]] = {}
        self._dead: dict[str, str] = {}
        self._known: dict[str, tuple[TextsUsed, dict[str, Array]]] = {}

    def fresh(self, entry: RaceEntry, *, verify: bool = True) -> ProbeProcess:
        """A process that the caller closes."""
        return ProbeProcess(
            entry.artifact,
            threads=self.threads,
            environment=entry.environment,
            deadline_s=DEADLINE_S,
            cores=self.cores,
            options=entry.options,
            verify=verify,
        )

    def open(self, entry: RaceEntry) -> tuple[ProbeProcess, TextsUsed]:
        """Raises TrimaranError when it cannot be opened, or died before."""
        if entry.name in self._dead:
            raise TrimaranError(self._dead[entry.name])
        if entry.name not in self._open:
            try:
                probe = self.fresh(entry)
                facts = probe.take_texts(self.texts, entry.rows)
            except TrimaranError as error:
                self._dead[entry.name] = str(error)
                raise
            used = TextsUsed(digest=digest_of_texts(self.texts), source=self._source, **facts)
            self._open[entry.name] = probe, used
        return self._open[entry.name]

    def known(self, entry: RaceEntry) -> tuple[TextsUsed, dict[str, Array]]:
        """The contender's facts about the texts and its answer to the first, kept even when its process is gone."""
        if entry.name not in self._known:
            probe, used = self.open(entry)
            self._known[entry.name] = used, probe.answers(self.texts[:1], entry.rows)
        return self._known[entry.name]

    def bury(self, entry: RaceEntry, error: TrimaranError) -> None:
        probe, _ = self._open.pop(entry.name)
        self._dead[entry.name] = str(error)
        probe.close()

    def close(self) -> None:
        for probe, _ in self._open.values():
            probe.close()
        self._open.clear()

    def __enter__(self) -> Probes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CutReason(NamedTuple):
    """Why a scenario did not run to its end, and what it lacked."""

    why: str
    by: Literal["samples", "process"]


class ScenarioRunner(NamedTuple):
    """How one scenario is run."""

    # One turn of one contender.
    turn: Callable[[ProbeProcess, RaceEntry, Any, str, int], Turn]
    # The result of all its turns.
    result: Callable[[ResultHead, Any, Sequence[Turn]], ScenarioResult]


def run_in_process(
    unit: SuiteUnit, entries: Sequence[RaceEntry], probes: Probes, *, step: Step | None = None
) -> list[ScenarioResult]:
    """One result for each contender. One that dies or lacks samples keeps its turns and says why it was cut."""
    runner, settings = RUNNERS[unit.asked.scenario], unit.asked
    turns: dict[str, list[Turn]] = {entry.name: [] for entry in entries}
    cuts: dict[str, CutReason] = {}
    used: dict[str, TextsUsed] = {}
    rounds = int(getattr(settings, "rounds", 1))
    generator = np.random.default_rng(0)
    for entry in entries:
        try:
            _, used[entry.name] = probes.open(entry)
        except TrimaranError as error:
            cuts[entry.name] = CutReason(str(error), "process")
    # Opening counts only in the scenario `cold-start`.
    begun_s = time.monotonic()
    for number in range(rounds):
        for index in generator.permutation(len(entries)):
            entry = entries[int(index)]
            if entry.name in cuts:
                continue
            if step:
                done = sum(map(len, turns.values()))
                step.advance(done, rounds * len(entries), f"round {number + 1}, {entry.name}")
            if time.monotonic() - begun_s >= settings.limit_s * len(entries):
                why = f"{number} of {rounds} rounds were done when {settings.limit_s:g} s were over."
                cuts[entry.name] = CutReason(why, "samples")
                continue
            probe, _ = probes.open(entry)
            try:
                turn = runner.turn(probe, entry, settings, unit.at, number)
                probe.rest()
            except TrimaranError as error:
                cuts[entry.name] = CutReason(str(error), "process")
                probes.bury(entry, error)
                continue
            turns[entry.name].append(turn)
            if short := turn.get("short"):
                cuts[entry.name] = CutReason(str(short), "samples")
    return [
        runner.result(
            _head(entry, unit, probes, used.get(entry.name), cuts.get(entry.name)), settings, turns[entry.name]
        )
        for entry in entries
    ]


def _head(
    entry: RaceEntry, unit: SuiteUnit, probes: Probes, used: TextsUsed | None, cut: CutReason | None
) -> ResultHead:
    return {
        "candidate": entry.name,
        "at": unit.at,
        "threads": probes.threads,
        "artifact": entry.artifact.digest,
        "rows": entry.rows,
        "texts": used if unit.asked.scenario != "shape-grid" else None,
        "cut": cut.why if cut else None,
        "cut_by": cut.by if cut else None,
    }


def _stream(probe: ProbeProcess, entry: RaceEntry, settings: SingleStreamSettings, at: str, number: int) -> Turn:
    turn = probe.run_texts(
        "stream",
        at=at,
        minimum_samples=settings.samples,
        minimum_time_s=settings.time_s,
        warmup_samples=settings.warmup,
        limit_s=settings.limit_s / settings.rounds,
    )
    if not turn.pop("enough"):
        turn["short"] = (
            f"It never reached its samples: {len(turn['samples_ns'])} of {settings.samples} in round {number + 1}, "
            f"when {settings.limit_s / settings.rounds:g} s were over."
        )
    return turn


def _streamed(head: ResultHead, settings: SingleStreamSettings, turns: Sequence[Turn]) -> ScenarioResult:
    parts = {name: tuple(sample for turn in turns for sample in turn[name]) for name in ("tokenise", "compute")}
    return results.SingleStream(
        **head,
        rounds=tuple(Round(samples_ns=turn["samples_ns"], warmup_ns=turn["warmup_ns"]) for turn in turns),
        parts_ns={name: samples for name, samples in parts.items() if samples},
    )


def _grid(probe: ProbeProcess, entry: RaceEntry, settings: ShapeGridSettings, at: str, number: int) -> Turn:
    cells = {}
    for shape in grid_shapes(settings, entry):
        turn = probe.measure(
            shape,
            entry.rows,
            minimum_samples=settings.samples,
            minimum_time_s=settings.time_s,
            warmup_samples=settings.warmup,
            warmup_time_s=0.0,
        )
        cells[shape] = turn
    return {"cells": cells}


def grid_shapes(settings: ShapeGridSettings, entry: RaceEntry) -> tuple[Shape, ...]:
    """The shapes of the grid that lie within the engine's profile."""
    batch, sequence = entry.artifact.profile.batch, entry.artifact.profile.sequence
    return tuple(
        Shape(batch=rows, sequence=tokens)
        for rows in settings.batches
        for tokens in settings.sequences
        if batch.minimum <= rows <= batch.maximum and sequence.minimum <= tokens <= sequence.maximum
    )


def _gridded(head: ResultHead, settings: ShapeGridSettings, turns: Sequence[Turn]) -> ScenarioResult:
    shapes = list(turns[0]["cells"]) if turns else []
    cells = (results.GridCell(shape=shape, rounds=tuple(turn["cells"][shape] for turn in turns)) for shape in shapes)
    return results.ShapeGrid(**head, cells=tuple(cells))


def _mix(probe: ProbeProcess, entry: RaceEntry, settings: MixedLengthsSettings, at: str, number: int) -> Turn:
    if not number:
        # The first batches of these sizes are warm-up.
        probe.run_texts("mixed", at=at, batch=settings.batch, seed=0)
    return probe.run_texts("mixed", at=at, batch=settings.batch, seed=number)


def _mixed(head: ResultHead, settings: MixedLengthsSettings, turns: Sequence[Turn]) -> ScenarioResult:
    return results.MixedLengths(
        **head, batch=settings.batch, rounds=tuple(results.MixedRound(**turn) for turn in turns)
    )


def _pass(probe: ProbeProcess, entry: RaceEntry, settings: OfflineSettings, at: str, number: int) -> Turn:
    if not number:
        probe.run_texts("offline", at=at)
    return probe.run_texts("offline", at=at)


def _passed(head: ResultHead, settings: OfflineSettings, turns: Sequence[Turn]) -> ScenarioResult:
    return results.Offline(**head, passes=tuple(results.OfflinePass(**turn) for turn in turns))


RUNNERS: dict[str, ScenarioRunner] = {
    "single-stream": ScenarioRunner(_stream, _streamed),
    "shape-grid": ScenarioRunner(_grid, _gridded),
    "mixed-lengths": ScenarioRunner(_mix, _mixed),
    "offline": ScenarioRunner(_pass, _passed),
}
