"""The final figure of each scenario with its interval, computed from raw samples and stored nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from trimaran.benchmarks.measure.steadiness import NOISE
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.results import ClosedLoop, ClosedPoint, OpenLoop, OpenPoint, ScenarioResult
from trimaran.judging.stats import estimate, median, over_rounds, percentile

Better = Literal["higher", "lower"]
# Throughput counts as saturated from this share of the best one on.
KNEE_SHARE = 0.9


class ScenarioFigure(NamedTuple):
    """One number of a scenario."""

    name: str
    value: float
    unit: str
    better: Better
    # Its interval, where there is one: order statistics of the rounds, or a bootstrap of the samples of all rounds.
    low: float | None = None
    high: float | None = None
    # Samples behind it.
    n: int = 0


class ScenarioReading(NamedTuple):
    """How a scenario is read."""

    title: str
    # What its final number is.
    meaning: str
    # Its numbers, the final one first.
    figures: Callable[[Any], tuple[ScenarioFigure, ...]]


def figures_of(result: ScenarioResult) -> tuple[ScenarioFigure, ...]:
    """The numbers of one result, the final one first; none when it was cut before anything was measured."""
    return READINGS[result.scenario].figures(result)


def final(result: ScenarioResult) -> ScenarioFigure | None:
    return next(iter(figures_of(result)), None)


def knee(result: ClosedLoop) -> ClosedPoint | None:
    """The fewest callers that reach nearly the best throughput: beyond it, more callers only wait longer."""
    if not result.points:
        return None
    best = max(map(throughput, result.points))
    return next(point for point in result.points if throughput(point) >= KNEE_SHARE * best)


def throughput(point: ClosedPoint | OpenPoint) -> float:
    return len(point.latencies_ns) * 1e9 / point.elapsed_ns


def holds(point: OpenPoint, result: OpenLoop) -> bool:
    """Whether the wanted share of all requests, failed ones included, was answered within the budget."""
    requests = len(point.latencies_ns) + point.failures
    in_time = sum(latency <= result.budget_ms * 1e6 for latency in point.latencies_ns)
    return requests > 0 and in_time >= result.share / 100 * requests


def highest_rate(result: OpenLoop) -> OpenPoint | None:
    """The highest rate that held below the lowest that did not: a lucky point beyond that does not count."""
    broken = min((point.rate_per_s for point in result.points if not holds(point, result)), default=float("inf"))
    held = [point for point in result.points if holds(point, result) and point.rate_per_s < broken]
    return max(held, key=lambda point: point.rate_per_s, default=None)


def padding_share(result: results.MixedLengths) -> float:
    real = sum(sum(turn.tokens) for turn in result.rounds)
    return 1 - real / sum(sum(turn.padded_tokens) for turn in result.rounds)


def uneven(scenarios: Sequence[ScenarioResult], *, tolerance: float = NOISE) -> str:
    """A sentence when rounds of a scenario disagree. They stay in its figures."""
    apart = []
    for result in scenarios:
        rounds = _rounds_of(result)
        middle = percentile(rounds, 50) if rounds else 1.0
        apart += [
            (max(time_ns / middle, middle / time_ns), f"{result.candidate}, {result.scenario}, {result.at}")
            for time_ns in rounds
        ]
    flagged = [pair for pair in apart if pair[0] > tolerance]
    if not flagged:
        return ""
    worst, where = max(flagged)
    return (
        f"{len(flagged)} of {len(apart)} rounds of scenarios differ by more than {tolerance:g} times from their "
        f"scenario's median, the worst {worst:.1f} times ({where})."
    )


def _rounds_of(result: ScenarioResult) -> list[float]:
    """One time a round, where the rounds of a scenario do the same work."""
    if isinstance(result, results.SingleStream):
        return [float(median(turn.samples_ns)) for turn in result.rounds if turn.samples_ns]
    if isinstance(result, results.MixedLengths):
        return [sum(turn.elapsed_ns) / sum(turn.tokens) for turn in result.rounds if turn.elapsed_ns]
    if isinstance(result, results.Offline):
        return [run.elapsed_ns / run.texts for run in result.passes if run.texts]
    return []


def _single_stream(result: results.SingleStream) -> tuple[ScenarioFigure, ...]:
    rounds = tuple(turn.samples_ns for turn in result.rounds if turn.samples_ns)
    return tuple(_latency(f"p{share:g} latency", rounds, share) for share in (50, 90, 99)) if rounds else ()


def _shape_grid(result: results.ShapeGrid) -> tuple[ScenarioFigure, ...]:
    cells = [cell for cell in result.cells if any(turn.samples_ns for turn in cell.rounds)]
    if not cells:
        return ()

    def rate(cell: results.GridCell) -> float:
        return cell.shape.batch * 1e9 / median([sample for turn in cell.rounds for sample in turn.samples_ns])

    best = max(cells, key=rate)
    rounds = tuple(tuple(best.shape.batch * 1e9 / sample for sample in turn.samples_ns) for turn in best.rounds)
    return (_spread(f"rows at {best.shape}", rate(best), "rows/s", "higher", rounds),)


def _mixed_lengths(result: results.MixedLengths) -> tuple[ScenarioFigure, ...]:
    rates = [sum(turn.tokens) * 1e9 / sum(turn.elapsed_ns) for turn in result.rounds if turn.elapsed_ns]
    if not rates:
        return ()
    texts = [sum(turn.rows) * 1e9 / sum(turn.elapsed_ns) for turn in result.rounds if turn.elapsed_ns]
    return (
        _over("real tokens", rates, "tokens/s", "higher"),
        _over("texts", texts, "texts/s", "higher"),
        ScenarioFigure("padding", 100 * padding_share(result), "%", "lower", n=len(rates)),
    )


def _offline(result: results.Offline) -> tuple[ScenarioFigure, ...]:
    if not result.passes:
        return ()
    return (
        _over("throughput", [run.texts * 1e9 / run.elapsed_ns for run in result.passes], "texts/s", "higher"),
        _over("real tokens", [run.tokens * 1e9 / run.elapsed_ns for run in result.passes], "tokens/s", "higher"),
    )


def _closed_loop(result: ClosedLoop) -> tuple[ScenarioFigure, ...]:
    point = knee(result)
    if point is None or not any(other.latencies_ns for other in result.points):
        return ()
    best = max(result.points, key=throughput)
    return (
        ScenarioFigure("best throughput", throughput(best), "requests/s", "higher", n=len(best.latencies_ns)),
        ScenarioFigure("knee", point.concurrency, "callers", "higher", n=len(result.points)),
        _latency("p99 latency at the knee", (point.latencies_ns,), 99),
    )


def _open_loop(result: OpenLoop) -> tuple[ScenarioFigure, ...]:
    if not result.points:
        return ()
    point = highest_rate(result)
    above = min((p.rate_per_s for p in result.points if not holds(p, result)), default=None)
    name = f"rate within {result.budget_ms:g} ms at p{result.share:g}"
    if point is None:
        return (
            ScenarioFigure(
                name, 0.0, "requests/s", "higher", 0.0, above, sum(len(p.latencies_ns) for p in result.points)
            ),
        )
    return (
        ScenarioFigure(
            name, point.rate_per_s, "requests/s", "higher", point.rate_per_s, above, len(point.latencies_ns)
        ),
        _latency(f"p{result.share:g} latency at that rate", (point.latencies_ns,), result.share),
    )


def _cold_start(result: results.ColdStart) -> tuple[ScenarioFigure, ...]:
    times_s = [start.elapsed_ns / 1e9 for start in result.starts if start.correct]
    return (_over("start to first correct answer", times_s, "s", "lower"),) if times_s else ()


def _memory(result: results.Memory) -> tuple[ScenarioFigure, ...]:
    return (ScenarioFigure("peak memory", result.peak_bytes / 1e6, "MB", "lower", n=1),)


def _size(result: results.SizeOnDisk) -> tuple[ScenarioFigure, ...]:
    return (ScenarioFigure("size on disk", sum(result.files.values()) / 1e6, "MB", "lower", n=len(result.files)),)


def _energy(result: results.Energy) -> tuple[ScenarioFigure, ...]:
    used = [1000 * run.joules / run.texts for run in result.passes if run.texts]
    return (_over("energy", used, "J per 1000 texts", "lower"),) if used else ()


READINGS: dict[str, ScenarioReading] = {
    "single-stream": ScenarioReading(
        "Single stream", "the latency that 50, 90 and 99 % of single texts do not exceed", _single_stream
    ),
    "shape-grid": ScenarioReading(
        "Shape grid", "rows per second of the best shape; every shape has its own median latency", _shape_grid
    ),
    "mixed-lengths": ScenarioReading(
        "Mixed lengths", "real tokens per second over batches of real texts; padding is not counted", _mixed_lengths
    ),
    "offline": ScenarioReading("Offline", "texts per second when all texts are there at once", _offline),
    "closed-loop": ScenarioReading(
        "Closed loop",
        f"the highest throughput of the sweep; the knee is the fewest callers that reach {KNEE_SHARE:.0%} of it",
        _closed_loop,
    ),
    "open-loop": ScenarioReading(
        "Open loop", "the highest rate of Poisson arrivals that keeps the budget, from the scheduled moment", _open_loop
    ),
    "cold-start": ScenarioReading(
        "Cold start", "median time from process start to the first correct answer", _cold_start
    ),
    "memory": ScenarioReading("Memory", "the largest resident set of the process, libraries included", _memory),
    "size": ScenarioReading("Size on disk", "bytes of the files that the engine reads", _size),
    "energy": ScenarioReading("Energy", "joules of the processor package per thousand texts", _energy),
}


def _latency(name: str, rounds: Sequence[Sequence[int]], share: float) -> ScenarioFigure:
    low, high = estimate(tuple(map(tuple, rounds)), share)
    pooled = [sample for samples in rounds for sample in samples]
    return ScenarioFigure(name, percentile(pooled, share) / 1e6, "ms", "lower", low / 1e6, high / 1e6, len(pooled))


def _over(name: str, values: Sequence[float], unit: str, better: Better) -> ScenarioFigure:
    """The median of one value a round; its interval is that of the rounds."""
    bounds = over_rounds(values)
    return ScenarioFigure(name, percentile(values, 50), unit, better, bounds.low, bounds.high, len(values))


def _spread(
    name: str, value: float, unit: str, better: Better, rounds: tuple[tuple[float, ...], ...]
) -> ScenarioFigure:
    low, high = estimate(rounds, 50)
    return ScenarioFigure(name, value, unit, better, min(low, value), max(high, value), sum(map(len, rounds)))
