"""The scenarios that a suite runs over the wire: one stream, offline, callers in a closed loop, requests at a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.finals import highest_rate, holds
from trimaran.benchmarks.scenarios.loadgen import Load, driver
from trimaran.benchmarks.scenarios.results import ClosedPoint, OpenPoint, ScenarioResult, ServerTime, TextsUsed
from trimaran.benchmarks.scenarios.settings import (
    ClosedLoopSettings,
    OfflineSettings,
    OpenLoopSettings,
    SingleStreamSettings,
)
from trimaran.core.samples import Round
from trimaran.judging.stats import median
from trimaran.pipeline.suite.callers import ServerCallers
from trimaran.pipeline.suite.load_driver import LoadDriver


@dataclass(frozen=True)
class ServedScenario:
    """One scenario against one server. A server that dies leaves what it answered, and the result is marked as cut."""

    driver: LoadDriver
    # What every result of this server says: candidate, wire, texts and so on.
    facts: Mapping[str, Any]
    # How many texts the callers send in turn.
    texts: int
    # Triton's own counters so far, if they can be read.
    statistics: Callable[[], ServerTime | None]
    advance: Callable[[int, int, str], None]

    def single_stream(self, settings: SingleStreamSettings) -> ScenarioResult:
        rounds: list[Round] = []
        cut: dict[str, str] = {}
        warmup = self.driver.load(ServerCallers.warm_up, settings.limit_s, calls=settings.warmup)
        before = self.statistics()
        limit_s = settings.limit_s / settings.rounds
        for number in range(settings.rounds):
            self.advance(number, settings.rounds, f"round {number + 1}")
            load = self.driver.load(
                ServerCallers.single_stream, limit_s, samples=settings.samples, time_s=settings.time_s, limit_s=limit_s
            )
            # The warm-up belongs to the first round.
            rounds.append(Round(samples_ns=load.latencies_ns, warmup_ns=() if number else warmup.latencies_ns))
            if cut := cut_of(load, settings.samples, limit_s, f"in round {number + 1}"):
                break
        server = difference(before, self.statistics())
        return results.SingleStream(**self.facts, driver=driver(), rounds=tuple(rounds), server=server, **cut)

    def offline(self, settings: OfflineSettings) -> ScenarioResult:
        used: TextsUsed | None = self.facts["texts"]
        passes: list[results.OfflinePass] = []
        cut: dict[str, str] = {}
        self.driver.load(ServerCallers.warm_up, settings.limit_s, calls=self.texts)
        for number in range(settings.rounds):
            self.advance(number, settings.rounds, f"pass {number + 1}")
            load = self.driver.load(ServerCallers.offline, settings.limit_s, callers=settings.callers)
            if cut := cut_of(load, 1, settings.limit_s, f"in pass {number + 1}"):
                break
            answered = len(load.latencies_ns)
            tokens = round(used.tokens * answered / self.texts) if used else 0
            passes.append(results.OfflinePass(elapsed_ns=load.elapsed_ns, texts=answered, tokens=tokens))
        return results.Offline(**self.facts, driver=driver(), passes=tuple(passes), **cut)

    def closed_loop(self, settings: ClosedLoopSettings) -> ScenarioResult:
        points: list[ClosedPoint] = []
        cut: dict[str, str] = {}
        self.driver.load(ServerCallers.warm_up, settings.limit_s, calls=self.texts)
        limit_s = settings.limit_s / len(settings.concurrency)
        for done, callers in enumerate(settings.concurrency):
            self.advance(done, len(settings.concurrency), f"{callers} callers")
            load = self.driver.load(
                ServerCallers.closed_loop,
                limit_s,
                callers=callers,
                samples=settings.samples,
                time_s=settings.time_s,
                limit_s=limit_s,
            )
            points.append(
                ClosedPoint(
                    concurrency=callers,
                    elapsed_ns=load.elapsed_ns,
                    latencies_ns=load.latencies_ns,
                    failures=load.failures,
                )
            )
            if cut := cut_of(load, settings.samples, limit_s, f"at {callers} callers"):
                break
        return results.ClosedLoop(**self.facts, points=tuple(points), **cut)

    def open_loop(self, settings: OpenLoopSettings) -> ScenarioResult:
        """Rates as shares of what one caller gets, up to the first that breaks the budget, then between the two."""
        alone = self.driver.load(ServerCallers.warm_up, settings.limit_s, calls=self.texts)
        result = results.OpenLoop(
            **self.facts, driver=driver(), budget_ms=settings.budget_ms, share=settings.share, points=()
        )
        if alone.dead or not alone.latencies_ns:
            return result.model_copy(update=cut_of(alone, 1, settings.limit_s, "before the first rate"))
        # The median, because the first call also waits for its connection.
        one_caller = 1e9 / median(alone.latencies_ns)
        for share in settings.shares_of_one_caller:
            result = self._with_rate(settings, result, one_caller * share)
            if result.cut or not holds(result.points[-1], result):
                break
        for _ in range(settings.refine):
            rate = between_rates(result)
            if result.cut or rate is None:
                break
            result = self._with_rate(settings, result, rate)
        return result.model_copy(update={"points": tuple(sorted(result.points, key=lambda point: point.rate_per_s))})

    def _with_rate(self, settings: OpenLoopSettings, result: results.OpenLoop, rate: float) -> results.OpenLoop:
        total = len(settings.shares_of_one_caller) + settings.refine
        limit_s = settings.limit_s / total
        self.advance(len(result.points), total, f"{rate:.0f} requests/s")
        possible = max(1, int(rate * limit_s))
        load = self.driver.load(
            ServerCallers.open_loop,
            settings.limit_s,
            callers=settings.callers,
            rate_per_s=rate,
            samples=min(settings.samples, possible),
            time_s=min(settings.time_s, limit_s),
            seed=len(result.points),
        )
        point = OpenPoint(
            rate_per_s=rate, elapsed_ns=load.elapsed_ns, latencies_ns=load.latencies_ns, failures=load.failures
        )
        needed = settings.samples if possible < settings.samples else 0
        cut = cut_of(load, needed, limit_s, f"at {rate:.3g} requests/s")
        return result.model_copy(update={"points": (*result.points, point), **cut})


# By the name of the scenario in a suite.
SCENARIOS: dict[str, Callable[[ServedScenario, Any], ScenarioResult]] = {
    "single-stream": ServedScenario.single_stream,
    "offline": ServedScenario.offline,
    "closed-loop": ServedScenario.closed_loop,
    "open-loop": ServedScenario.open_loop,
}


def cut_of(load: Load, samples: int, limit_s: float, where: str) -> dict[str, str]:
    """The fields of a result that say why its load did not get to its end; empty when it did."""
    if load.dead:
        return {"cut": f"The server stopped answering {where}. {load.dead}", "cut_by": "server"}
    if len(load.latencies_ns) < samples:
        reason = f"It never reached its samples: {len(load.latencies_ns)} of {samples} {where}, in {limit_s:g} s."
        return {"cut": reason, "cut_by": "samples"}
    return {}


def between_rates(result: results.OpenLoop) -> float | None:
    """Half-way between the highest rate that held and the lowest that did not; None when none broke the budget."""
    broken = min((point.rate_per_s for point in result.points if not holds(point, result)), default=None)
    held = highest_rate(result)
    return None if broken is None else ((held.rate_per_s if held else 0.0) + broken) / 2


def difference(before: ServerTime | None, after: ServerTime | None) -> ServerTime | None:
    if before is None or after is None:
        return None
    first, last = before.model_dump(), after.model_dump()
    return ServerTime(**{name: last[name] - first[name] for name in first})
