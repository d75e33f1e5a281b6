"""The plots of a race: speed-ups with intervals, shares of the ceiling, latencies, speed against fidelity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.figures import decisive, find, shapes_of, speedups_of
from trimaran.benchmarks.report.limits import shares
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.report.svg import (
    WIDTH,
    Bar,
    Scale,
    bar_chart,
    curve,
    element,
    label,
    line,
    picture,
    power_ticks,
    round_ticks,
    spread,
    x_axis,
    y_axis,
)
from trimaran.benchmarks.report.wording import VERDICT_MARKS, metric_name, number, times
from trimaran.core.samples import Shape
from trimaran.core.tasks import task
from trimaran.judging.stats import ecdf

COLOURS, DASHES = 8, 5


def drawn_rows(report: Report) -> tuple[CandidateRow, ...]:
    """The rows that have samples, in the report's order."""
    measured = {measurement.candidate for measurement in report.measurements}
    return tuple(row for row in report.rows if row.name in measured)


def series_class(report: Report, name: str) -> str:
    """The line style of one candidate, the same in every plot. Up to forty candidates have a style of their own.

    Dashes shift after every fourth, so that the two blues and the two browns are dashed differently.
    """
    if name == report.reference.name:
        return "series reference"
    index = [row.name for row in report.rows[1:]].index(name)
    chosen = " picked" if report.verdict.chosen == name else ""
    return f"series colour{index % COLOURS + 1} dash{(index % COLOURS + index // 4) % DASHES + 1}{chosen}"


def speedup_bars(report: Report, shape: Shape) -> Markup:
    ratios = [
        (row, ratio)
        for row in drawn_rows(report)
        if row.name != report.reference.name and (ratio := speedups_of(report, row.name).get(shape))
    ]
    high = max([1.2, *(ratio.high for _, ratio in ratios)])
    bars = [
        Bar(
            f"{VERDICT_MARKS[row.verdict]} {row.name}",
            ratio.median,
            times(ratio),
            f"bar {row.verdict}",
            ratio.low,
            ratio.high,
        )
        for row, ratio in ratios
    ]
    title = f"Speed-up over eager PyTorch at {shape}: " + ", ".join(f"{row.name} {times(r)}" for row, r in ratios)
    ticks = {tick: f"{tick:g}×" for tick in round_ticks(0.0, high, about=6)}
    return bar_chart(title, bars, high=high, ticks=ticks, mark=(1.0, "eager"))


def share_bars(report: Report, shape: Shape) -> Markup:
    """Each candidate's share of the measured ceiling."""
    at_shape = [share for share in shares(report) if share.shape == shape]
    bars = [
        Bar(
            f"{VERDICT_MARKS[reached.verdict]} {reached.candidate}, {reached.arithmetic}",
            reached.share,
            f"{reached.share:.0%}",
            f"bar {reached.verdict}",
        )
        for reached in at_shape
    ]
    words = ", ".join(f"{reached.candidate} {reached.share:.0%}" for reached in at_shape)
    title = f"Share of the measured ceiling at {shape}: {words}"
    ticks = {tick: f"{tick:.0%}" for tick in (0.25, 0.5, 0.75, 1.0)}
    return bar_chart(title, bars, high=max([1.0, *(reached.share for reached in at_shape)]), ticks=ticks, level=1.0)


def latency_ecdf(report: Report, shape: Shape) -> Markup:
    """The share of calls that took no longer, by milliseconds, one line a candidate."""
    timed = [(row, m) for row in drawn_rows(report) if (m := find(report.measurements, row.name, shape))]
    times_ms = [sample / 1e6 for _, measurement in timed for sample in measurement.samples_ns]
    x = Scale(min(times_ms) / 1.1, max(times_ms) * 1.1, 34.0, WIDTH - 8.0, logarithmic=True)
    y = Scale(0.0, 1.0, 214.0, 12.0)
    axis = {tick: f"{tick:g}" for tick in power_ticks(x.low, x.high)}
    return picture(
        250.0,
        f"Share of calls that took no longer, at {shape}",
        *y_axis(x, y, {share: f"{share:.0%}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}),
        *x_axis(x, y, axis, "milliseconds a batch (logarithmic)", grid=True),
        *(_steps(measurement, x, y, series_class(report, row.name)) for row, measurement in timed),
    )


def _steps(measurement: Measurement, x: Scale, y: Scale, style: str) -> Markup:
    path, height = "", y(0.0)
    for sample, share in ecdf(measurement.samples_ns):
        path += f"{'L' if path else 'M'}{x(sample / 1e6):.1f} {height:.1f}V{y(share):.1f}"
        height = y(share)
    return element("path", d=path, class_=style)


class FidelityPoint(NamedTuple):
    """A candidate's headline metric and its speed-up at the decisive shape."""

    row: CandidateRow
    metric: float
    speed: float


def speed_against_fidelity(report: Report) -> Markup | None:
    """None when no candidate has both numbers."""
    headline = task(report.task).headline
    shape = decisive(report.profile, report.objective)[0]
    points = [
        FidelityPoint(row, row.quality.metrics[headline], ratio.median)
        for row in report.candidates
        if row.quality
        and math.isfinite(row.quality.metrics.get(headline, math.nan))
        and (ratio := speedups_of(report, row.name).get(shape))
    ]
    if not points or shape not in shapes_of(report.measurements):
        return None
    falling = _falls(report.task, headline)
    limit = next((gate.limit for gate in report.gates if gate.metric == headline), None)
    x = _truth_scale([point.metric for point in points], limit, falling=falling)
    y = Scale(0.0, max([1.2, *(point.speed for point in points)]) * 1.12, 244.0, 12.0)
    ticks = round_ticks(min(x.low, x.high), max(x.low, x.high), about=5)
    heights = spread([y(point.speed) for point in points], 14.0, y.end + 18, y.start - 6)
    best = sorted((x(point.metric), y(point.speed)) for point in _front(points, falling=falling))
    return picture(
        284.0,
        f"Speed-up at {shape} against {metric_name(headline)}",
        *y_axis(x, y, {tick: f"{tick:g}×" for tick in sorted({1.0, *round_ticks(0.0, y.high)})}, level=1.0),
        *x_axis(
            x,
            y,
            {tick: number(tick) for tick in ticks if 0 <= tick <= max(1.0, x.low)},
            f"{metric_name(headline)} with eager (right is truer)",
            grid=True,
        ),
        *(_gate(x, y, limit) if limit is not None else ()),
        *([curve(best, "front")] if len(best) > 1 else []),
        *(
            _point(point.row, x(point.metric), y(point.speed), height)
            for point, height in zip(points, heights, strict=True)
        ),
    )


def _gate(x: Scale, y: Scale, limit: float) -> tuple[Markup, ...]:
    """The limit as a line, with everything that breaks it shaded."""
    return (
        element("rect", x=x.start, y=y.end, width=x(limit) - x.start, height=y.start - y.end, class_="out"),
        line(x(limit), y.start, x(limit), y.end, class_="gate"),
        label(f"gate {number(limit)}", x(limit) - 4, y.end + 10, text_anchor="end", class_="tick strong"),
    )


def _front(points: Sequence[FidelityPoint], *, falling: bool) -> list[FidelityPoint]:
    """The points that no other point beats in both speed and fidelity."""
    side = -1 if falling else 1

    def beats(candidate: FidelityPoint, other: FidelityPoint) -> bool:
        truer, faster = side * (candidate.metric - other.metric), candidate.speed - other.speed
        return truer >= 0 and faster >= 0 and truer + faster > 0

    return [point for point in points if not any(beats(other, point) for other in points)]


def _falls(task_name: str, metric: str) -> bool:
    """Whether less of this metric is truer, by the gates of any level."""
    gates = [gate for gates in task(task_name).gates.values() for gate in gates if gate.metric == metric]
    return any(gate.comparison == "<=" for gate in gates)


def _truth_scale(values: list[float], limit: float | None, *, falling: bool) -> Scale:
    """From the worst on the left to perfect (1, or 0 for a distance) on the right."""
    seen = values if limit is None else [*values, limit]
    worst, perfect = (max(seen), 0.0) if falling else (min(seen), 1.0)
    room = (perfect - worst or (-1e-9 if falling else 0.01)) * 0.12
    return Scale(worst - room, perfect + room * 0.7, 34.0, WIDTH - 8.0)


def _point(row: CandidateRow, cx: float, cy: float, label_y: float) -> Markup:
    """A dot (a cross where a gate broke) and its name, with a thin line to it where the name had to move."""
    leftward = cx > WIDTH / 2
    side = -1 if leftward else 1
    text_x = cx + side * 12
    leader = line(cx, cy, text_x - side * 2, label_y, class_="leader") if abs(label_y - cy) > 6 else Markup()
    if row.verdict in ("rejected", "failed"):
        mark = Markup().join(line(cx - 4, cy - way * 4, cx + 4, cy + way * 4, class_="cross") for way in (1, -1))
    else:
        mark = element("circle", cx=cx, cy=cy, r=4.5, class_=f"dot {row.verdict}")
        if row.verdict == "chosen":
            mark += element("circle", cx=cx, cy=cy, r=8.5, class_="ring")
    anchor = "end" if leftward else "start"
    strong = "name strong" if row.verdict == "chosen" else "name"
    return leader + mark + label(row.name, text_x, label_y + 4, text_anchor=anchor, class_=strong)
