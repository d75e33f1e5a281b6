"""The pictures of a report: speed-ups with intervals, latency distributions, speed against fidelity."""

from __future__ import annotations

import math

from trimaran.benchmarks.report.figures import decisive, find, shapes_of, speedups
from trimaran.benchmarks.report.report import CandidateRow, Measurement, Report
from trimaran.benchmarks.report.svg import Scale, element, label, line, picture, power_ticks, round_ticks, spread
from trimaran.benchmarks.report.wording import VERDICT_MARKS, metric_name, number, times
from trimaran.core.samples import Shape
from trimaran.core.tasks import task
from trimaran.judging.stats import Ratio, ecdf

# Drawn about as wide as a phone, so that 11-unit letters stay readable there; wider pages show several abreast.
WIDTH = 370.0
SERIES = 8


def drawn_rows(report: Report) -> tuple[CandidateRow, ...]:
    """The reference, the baselines and the candidates that have samples, in the report's order."""
    measured = {measurement.candidate for measurement in report.measurements}
    return tuple(row for row in (report.reference, *report.baselines, *report.candidates) if row.name in measured)


def series_class(report: Report, name: str) -> str:
    """The line style of one candidate, the same in every picture: colour and dashes both tell it apart."""
    if name == report.reference.name:
        return "series reference"
    index = [row.name for row in (*report.baselines, *report.candidates)].index(name)
    chosen = " picked" if report.verdict.chosen == name else ""
    return f"series s{index % SERIES + 1}{chosen}"


def speedup_bars(report: Report, shape: Shape) -> str:
    rows = [row for row in drawn_rows(report) if row.name != report.reference.name]
    found = {
        row.name: speedups(report.measurements, row.name, reference=report.reference.name).get(shape) for row in rows
    }
    bars = [(row, ratio) for row in rows if (ratio := found[row.name])]
    top = max([1.2, *(ratio.high for _, ratio in bars)])
    scale = Scale(0.0, top * 1.16, 2.0, WIDTH - 2.0)
    pitch, head = 36.0, 20.0
    bottom = head + pitch * len(bars) + 4
    ticks = [
        line(scale(tick), head, scale(tick), bottom, class_="grid")
        + label(f"{tick:g}×", scale(tick), bottom + 14, text_anchor="start" if tick == 0 else "middle", class_="tick")
        for tick in round_ticks(0.0, scale.high, about=6)
    ]
    eager = label("eager", scale(1.0), head - 9, text_anchor="middle", class_="tick strong")
    drawn = [_bar(row, ratio, scale, head + pitch * index) for index, (row, ratio) in enumerate(bars)]
    title = f"Speed-up over eager PyTorch at {shape}: " + ", ".join(f"{row.name} {times(r)}" for row, r in bars)
    return picture(WIDTH, bottom + 22, title, *ticks, eager, *drawn)


def _bar(row: CandidateRow, ratio: Ratio, scale: Scale, top: float) -> str:
    y, height = top + 17, 12.0
    middle = y + height / 2
    whisker = "".join(
        (
            line(scale(ratio.low), middle, scale(ratio.high), middle, class_="whisker"),
            line(scale(ratio.low), middle - 4, scale(ratio.low), middle + 4, class_="whisker"),
            line(scale(ratio.high), middle - 4, scale(ratio.high), middle + 4, class_="whisker"),
        )
    )
    return element(
        "g",
        label(f"{VERDICT_MARKS[row.verdict]} {row.name}", scale(0.0), top + 12, class_="name"),
        element(
            "rect",
            x=scale(0.0),
            y=y,
            width=max(1.0, scale(ratio.median) - scale(0.0)),
            height=height,
            rx=2,
            class_=f"bar {row.verdict}",
        ),
        line(scale(1.0), y - 2, scale(1.0), y + height + 2, class_="one"),
        whisker,
        label(times(ratio), scale(ratio.high) + 7, middle + 4, class_="value"),
    )


def latency_ecdf(report: Report, shape: Shape) -> str:
    lines = [(row, found) for row in drawn_rows(report) if (found := find(report.measurements, row.name, shape))]
    times_ms = [sample / 1e6 for _, measurement in lines for sample in measurement.samples_ns]
    x = Scale(min(times_ms) / 1.1, max(times_ms) * 1.1, 34.0, WIDTH - 8.0, logarithmic=True)
    y = Scale(0.0, 1.0, 214.0, 12.0)
    grid = [
        line(x.start, y(share), x.end, y(share), class_="grid")
        + label(f"{share:.0%}", x.start - 5, y(share) + 4, text_anchor="end", class_="tick")
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    grid += [
        line(x(tick), y.start, x(tick), y.end, class_="grid")
        + label(f"{tick:g}", x(tick), y.start + 15, text_anchor="middle", class_="tick")
        for tick in power_ticks(x.low, x.high)
    ]
    steps = [_steps(measurement, x, y, series_class(report, row.name)) for row, measurement in lines]
    axis = label("milliseconds a batch (logarithmic)", (x.start + x.end) / 2, y.start + 31, text_anchor="middle")
    return picture(WIDTH, 250.0, f"Share of calls that took no longer, at {shape}", *grid, *steps, axis)


def _steps(measurement: Measurement, x: Scale, y: Scale, style: str) -> str:
    path, height = "", y(0.0)
    for sample, share in ecdf(measurement.samples_ns):
        at = x(sample / 1e6)
        path += f"{'L' if path else 'M'}{at:.1f} {height:.1f}V{y(share):.1f}"
        height = y(share)
    return element("path", d=path, class_=style)


def speed_against_fidelity(report: Report) -> str | None:
    """None when no candidate has both numbers."""
    headline = task(report.task).headline
    shape = decisive(report.profile, report.objective)[0]
    points = [
        (row, row.quality.metrics[headline], ratio.median)
        for row in report.candidates
        if row.quality
        and math.isfinite(row.quality.metrics.get(headline, math.nan))
        and (ratio := speedups(report.measurements, row.name, reference=report.reference.name).get(shape))
    ]
    if not points or shape not in shapes_of(report.measurements):
        return None
    limit = next((gate.limit for gate in report.gates if gate.metric == headline), None)
    x = _truth_scale([value for _, value, _ in points], limit, falling=_falls(report.task, headline))
    y = Scale(0.0, max([1.2, *(speed for *_, speed in points)]) * 1.12, 244.0, 12.0)
    parts = [
        line(x.start, y(tick), x.end, y(tick), class_="level" if tick == 1 else "grid")
        + label(f"{tick:g}×", x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick in sorted({1.0, *round_ticks(0.0, y.high)})
    ]
    parts += [
        label(number(tick), x(tick), y.start + 15, text_anchor="middle", class_="tick")
        + line(x(tick), y.start, x(tick), y.end, class_="grid")
        for tick in round_ticks(min(x.low, x.high), max(x.low, x.high), about=5)
        if 0 <= tick <= max(1.0, x.low)
    ]
    if limit is not None:
        parts.append(
            element("rect", x=x.start, y=y.end, width=x(limit) - x.start, height=y.start - y.end, class_="out")
        )
        parts.append(line(x(limit), y.start, x(limit), y.end, class_="gate"))
        parts.append(label(f"gate {number(limit)}", x(limit) - 4, y.end + 10, text_anchor="end", class_="tick strong"))
    front = sorted((x(value), y(speed)) for _, value, speed in _front(points, falling=_falls(report.task, headline)))
    if len(front) > 1:
        path = "".join(f"{'L' if index else 'M'}{a:.1f} {b:.1f}" for index, (a, b) in enumerate(front))
        parts.append(element("path", d=path, class_="front"))
    heights = spread([y(speed) for *_, speed in points], 14.0, y.end + 18, y.start - 6)
    parts += [
        _point(row, x(value), y(speed), height) for (row, value, speed), height in zip(points, heights, strict=True)
    ]
    parts.append(
        label(f"{metric_name(headline)} with eager (right is truer)", (x.start + x.end) / 2, 276, text_anchor="middle")
    )
    return picture(WIDTH, 284.0, f"Speed-up at {shape} against {metric_name(headline)}", *parts)


def _front(
    points: list[tuple[CandidateRow, float, float]], *, falling: bool
) -> list[tuple[CandidateRow, float, float]]:
    """The points that no other beats in both speed and truth."""
    side = -1 if falling else 1

    def beats(one: tuple[CandidateRow, float, float], other: tuple[CandidateRow, float, float]) -> bool:
        truer, faster = side * (one[1] - other[1]), one[2] - other[2]
        return truer >= 0 and faster >= 0 and truer + faster > 0

    return [point for point in points if not any(beats(other, point) for other in points)]


def _falls(task_name: str, metric: str) -> bool:
    """Whether less of this metric is truer, as the gates of any level say."""
    gates = [gate for gates in task(task_name).gates.values() for gate in gates if gate.metric == metric]
    return any(gate.comparison == "<=" for gate in gates)


def _truth_scale(values: list[float], limit: float | None, *, falling: bool) -> Scale:
    """From the worst on the left to perfect (1, or 0 for a distance) on the right."""
    seen = values if limit is None else [*values, limit]
    worst, perfect = (max(seen), 0.0) if falling else (min(seen), 1.0)
    room = (perfect - worst or (-1e-9 if falling else 0.01)) * 0.12
    return Scale(worst - room, perfect + room * 0.7, 34.0, WIDTH - 8.0)


def _point(row: CandidateRow, cx: float, cy: float, label_y: float) -> str:
    leftward = cx > WIDTH / 2
    side = -1 if leftward else 1
    text_x = cx + side * 12
    leader = line(cx, cy, text_x - side * 2, label_y, class_="leader") if abs(label_y - cy) > 6 else ""
    if row.verdict in ("rejected", "failed"):
        arm = 4.0
        mark = line(cx - arm, cy - arm, cx + arm, cy + arm, class_="cross") + line(
            cx - arm, cy + arm, cx + arm, cy - arm, class_="cross"
        )
    else:
        mark = element("circle", cx=cx, cy=cy, r=4.5, class_=f"dot {row.verdict}")
        if row.verdict == "chosen":
            mark += element("circle", cx=cx, cy=cy, r=8.5, class_="ring")
    anchor = "end" if leftward else "start"
    strong = "name strong" if row.verdict == "chosen" else "name"
    return leader + mark + label(row.name, text_x, label_y + 4, text_anchor=anchor, class_=strong)
