"""Engines on a clock that we turn by hand, and small literal reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from tests.tiny import PROFILE
from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.measure.runner import RaceEntry
from trimaran.benchmarks.report.choice import broken_sentence, choose
from trimaran.benchmarks.report.figures import grid
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Level, Objective, Rows
from trimaran.core.environment import Environment
from trimaran.core.errors import ChildError
from trimaran.core.samples import Round, Shape
from trimaran.core.tasks import Gate, gates_for
from trimaran.judging.gate_check import point_check
from trimaran.judging.judgement import Quality
from trimaran.judging.probe import timed_calls

MILLISECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def seconds(self) -> float:
        return self.now_ns / 1e9


class FakeTiming:
    """A contender whose every call takes a seeded time around its own speed."""

    def __init__(self, clock: Clock, *, median_ms: float, seed: int, dies_at_call: int | None = None) -> None:
        self._clock, self._median_ms = clock, median_ms
        self._generator = np.random.default_rng(seed)
        self._calls, self._dies_at_call = 0, dies_at_call
        self.peak_memory_bytes, self.load_s = 123, 0.5
        self.turns: list[Shape] = []

    def _call(self, batch: int) -> None:
        self._calls += 1
        if self._calls == self._dies_at_call:
            raise ChildError("The child process died of SIGSEGV.", reason="SIGSEGV")
        self._clock.now_ns += int(self._median_ms * batch * MILLISECOND * self._generator.lognormal(0, 0.05))

    def measure(
        self,
        shape: Shape,
        rows: Rows,
        *,
        minimum_samples: int,
        minimum_time_s: float,
        warmup_samples: int,
        warmup_time_s: float,
        repeat: int = 1,
    ) -> Round:
        self.turns.append(shape)
        return Round(
            **timed_calls(
                lambda: self._call(shape.batch * repeat),
                minimum_samples=minimum_samples,
                minimum_time_s=minimum_time_s,
                warmup_samples=warmup_samples,
                warmup_time_s=warmup_time_s,
                clock=self._clock,
            )
        )

    def rest(self) -> None:
        pass


def opener(
    contenders: dict[str, FakeTiming], opened: list[str]
) -> Callable[[RaceEntry], contextlib.AbstractContextManager[FakeTiming]]:
    @contextlib.contextmanager
    def open_probe(entry: RaceEntry) -> Iterator[FakeTiming]:
        opened.append(entry.name)
        yield contenders[entry.name]
        opened.remove(entry.name)

    return open_probe


def measurement(name: str, shape: Shape, median_ms: float, *, seed: int = 0, rounds: int = 5) -> Measurement:
    generator = np.random.default_rng([seed, *name.encode()])
    return Measurement(
        candidate=name,
        artifact="a" * 64,
        shape=shape,
        threads=2,
        rows="padded",
        rounds=tuple(
            Round(samples_ns=tuple(int(median_ms * MILLISECOND * x) for x in generator.lognormal(0, 0.02, 12)))
            for _ in range(rounds)
        ),
    )


FAITHFUL = {
    "mean_cosine_distance": 1e-9,
    "worst_cosine_distance": 1e-8,
    "tail_cosine_distance": 1e-8,
    "tail_similarity_change": 1e-8,
    "epsilon_recall": 1.0,
    "rank_correlation": 1.0,
    "neighbour_overlap": 1.0,
    "max_abs_difference": 1e-6,
    "batch_change": 1e-12,
}


def gates_of(level: Level) -> tuple[Gate, ...]:
    """Those of the level, with one more on what is else only shown, as `--gate` adds it."""
    overlap = {"exact": 1.0, "strict": 0.97, "balanced": 0.94}
    return gates_for("embedding", level, {"neighbour_overlap": overlap[level]})


def row(name: str, level: Level = "strict", **metrics: float) -> CandidateRow:
    found = {**FAITHFUL, **metrics}
    quality = Quality(
        artifact="a" * 64,
        task="embedding",
        metrics=found,
        rows="padded",
        changes={"alone": 0.0, "equal-length": 1e-13, "padded": found["batch_change"]},
        neighbours=3,
        checks=tuple(point_check(gate, found[gate.metric], texts=400) for gate in gates_of(level)),
        n=40,
        n_batched=40,
        texts="b" * 64,
        peak_memory_bytes=99_000_000,
    )
    return CandidateRow(
        name=name,
        backend="openvino",
        precision="fp32",
        verdict="passed" if quality.holds else "rejected",
        reason="It keeps every gate." if quality.holds else broken_sentence(quality),
        artifact="a" * 64,
        quality=quality,
        size_bytes=24_000_000,
        peak_memory_bytes=99_000_000,
    )


EAGER = CandidateRow(
    name="eager", backend="torch", precision="fp32", verdict="reference", reason="What the others are compared with."
)
FAILED = CandidateRow(
    name="crashing",
    backend="openvino",
    precision="bf16",
    verdict="failed",
    reason="The child process died of SIGILL. <script>alert('x')</script>",
)


def report(
    rows: list[CandidateRow], speeds: dict[str, float], *, objective: Objective = "latency", level: Level = "strict"
) -> Report:
    """Eager takes 10 ms at every shape; each named candidate 10 ms over its speed-up."""
    measurements = [
        measurement(name, shape, 10.0 / speed)
        for name, speed in {"eager": 1.0, **speeds}.items()
        for shape in grid(PROFILE)
    ]
    choice = choose(
        rows, measurements, reference=EAGER, model="tiny & <co>", level=level, objective=objective, profile=PROFILE
    )
    return Report(
        created="2026-11-20T12:00:00+00:00",
        trimaran="0.1.0",
        model="tiny & <co>",
        task="embedding",
        family="bert",
        level=level,
        gates=gates_of(level),
        objective=objective,
        threads=2,
        profile=PROFILE,
        environment=Environment(system="Linux 6", python="3.11", cpu="A <fast> CPU", cores=2, memory_bytes=2**33),
        command=("trimaran", "deploy", "-m", "my model", "--threads", "2"),
        reference=EAGER,
        candidates=choice.rows,
        measurements=tuple(measurements),
        verdict=choice.verdict,
    )


def usual_report() -> Report:
    rows = [row("quick"), row("slow"), row("wrong", neighbour_overlap=0.913), FAILED]
    return report(rows, {"quick": 3.0, "slow": 1.5, "wrong": 5.0})


def entries(artifact: Artifact, *names: str) -> list[RaceEntry]:
    return [RaceEntry(name, artifact) for name in names]
