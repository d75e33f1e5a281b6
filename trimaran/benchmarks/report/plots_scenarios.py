"""The plots of scenarios: shapes as a heat map, load curves with the knee, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from trimaran.benchmarks.report.svg import (
    WIDTH,
    Scale,
    curve,
    element,
    label,
    line,
    picture,
    power_ticks,
    room_for,
    round_ticks,
    x_axis,
    y_axis,
)
from trimaran.benchmarks.report.wording import count, milliseconds, short_number
from trimaran.benchmarks.scenarios.finals import highest_rate, holds, knee, throughput
from trimaran.benchmarks.scenarios.results import ClosedLoop, OpenLoop, ShapeGrid
from trimaran.benchmarks.scenarios.time_parts import TimeSplit
from trimaran.core.samples import Shape
from trimaran.judging.stats import median, percentile, pooled


def cell_medians(grid: ShapeGrid) -> dict[Shape, int]:
    """Median nanoseconds of each shape that has samples."""
    samples = {cell.shape: pooled([turn.samples_ns for turn in cell.rounds]) for cell in grid.cells}
    return {shape: median(times_ns) for shape, times_ns in samples.items() if times_ns}


def heat_map(grid: ShapeGrid, reference: ShapeGrid | None) -> Markup:
    """One cell a shape, darker is faster: by speed-up over eager where that was run too, else by rows per second."""
    medians = cell_medians(grid)
    base = cell_medians(reference) if reference and reference is not grid else {}
    ratios = {shape: base[shape] / time_ns for shape, time_ns in medians.items() if shape in base}
    rates = {shape: shape.batch * 1e9 / time_ns for shape, time_ns in medians.items()}
    shown: Mapping[Shape, float] = ratios if len(ratios) == len(medians) else rates
    batches = sorted({shape.batch for shape in medians})
    sequences = sorted({shape.sequence for shape in medians})
    names = [count(batch, "row") for batch in batches]
    left, head, height = room_for(names, least=50.0), 24.0, 38.0
    width = (WIDTH - left - 2) / len(sequences)
    # The scale begins at "as fast as eager", so that cells that differ only by noise look alike.
    low, high = min(1.0 if shown is ratios else 0.0, *shown.values()), max(shown.values())
    parts = [label("tokens", left - 6, head - 6, text_anchor="end", class_="tick")]
    parts += [
        label(str(sequence), left + width * (column + 0.5), head - 6, text_anchor="middle", class_="tick strong")
        for column, sequence in enumerate(sequences)
    ]
    for row, (batch, name) in enumerate(zip(batches, names, strict=True)):
        top = head + height * row
        parts.append(label(name, left - 6, top + height / 2 + 4, text_anchor="end", class_="tick strong"))
        for column, sequence in enumerate(sequences):
            shape = Shape(batch=batch, sequence=sequence)
            if shape in medians:
                strength = 0.06 + 0.36 * (shown[shape] - low) / ((high - low) or 1.0)
                words = f"{shown[shape]:.2f}×" if shown is ratios else f"{short_number(shown[shape])}/s"
                parts.append(_cell(left + width * column, top, width, height, strength, words, medians[shape]))
    what = "Speed-up over eager PyTorch" if shown is ratios else "Rows per second"
    bottom = head + height * len(batches) + 4
    return picture(bottom, f"{what} of {grid.candidate} by batch and tokens", *parts)


def _cell(x: float, y: float, width: float, height: float, strength: float, words: str, time_ns: int) -> Markup:
    box = {"x": x + 1, "y": y + 1, "width": width - 2, "height": height - 2, "rx": 4}
    middle = {"x": x + width / 2, "text_anchor": "middle"}
    return element(
        "g",
        element("rect", **box, class_="cell"),
        element("rect", **box, class_="heat", fill_opacity=strength),
        element("text", words, **middle, y=y + height / 2 + 1, class_="value bare"),
        element("text", f"{milliseconds(time_ns)} ms", **middle, y=y + height / 2 + 13, class_="tick bare"),
    )


def load_curves(result: ClosedLoop) -> Markup | None:
    """Throughput above, p50 and p99 below, by the number of callers; the knee is marked in both."""
    points = [point for point in result.points if point.latencies_ns]
    bend = knee(result)
    if len(points) < 2 or bend is None:
        return None
    rates = [throughput(point) for point in points]
    p50, p99 = ([percentile(point.latencies_ns, share) / 1e6 for point in points] for share in (50, 99))
    upper, lower = Scale(0.0, max(rates) * 1.12, 128.0, 14.0), Scale(0.0, max(p99) * 1.12, 272.0, 158.0)
    rate_ticks = {tick: f"{short_number(tick)}/s" for tick in round_ticks(0, upper.high, about=4)}
    time_ticks = {tick: f"{short_number(tick)} ms" for tick in round_ticks(0, lower.high, about=4)}
    left = room_for([*rate_ticks.values(), *time_ticks.values()])
    x = Scale(points[0].concurrency, points[-1].concurrency, left, WIDTH - 14.0, logarithmic=True)
    xs = [x(point.concurrency) for point in points]
    at = x(bend.concurrency)
    leftward = at > WIDTH * 0.6

    def drawn(scale: Scale, values: Sequence[float], style: str) -> Markup:
        return curve(zip(xs, map(scale, values), strict=True), style)

    return picture(
        310.0,
        f"Throughput and latency of {result.candidate} by number of callers",
        *y_axis(x, upper, rate_ticks),
        *y_axis(x, lower, time_ticks),
        line(at, upper.end, at, lower.start, class_="gate"),
        label(
            f"knee: {count(bend.concurrency, 'caller')}",
            at + (-6 if leftward else 6),
            upper.start - 8,
            text_anchor="end" if leftward else "start",
            class_="name strong",
        ),
        drawn(upper, rates, "series picked"),
        drawn(lower, p99, "series colour2 dash2"),
        drawn(lower, p50, "series colour1 dash1"),
        label("p99", xs[-1] - 4, lower(p99[-1]) - 8, text_anchor="end", class_="name"),
        label("p50", xs[-1] - 4, min(lower(p50[-1]) + 20, lower.start - 4), text_anchor="end", class_="name"),
        *x_axis(
            x,
            lower,
            {point.concurrency: str(point.concurrency) for point in points},
            "callers at once (logarithmic)",
        ),
    )


def rate_curve(result: OpenLoop) -> Markup | None:
    """The watched percentile by the rate of arrivals, with the budget and the highest rate that kept it."""
    points = sorted((p for p in result.points if p.latencies_ns), key=lambda point: point.rate_per_s)
    if len(points) < 2:
        return None
    times_ms = [percentile(point.latencies_ns, result.share) / 1e6 for point in points]
    both = [*times_ms, result.budget_ms]
    y = Scale(min(both) / 1.4, max(both) * 1.3, 214.0, 14.0, logarithmic=True)
    ticks = {tick: f"{short_number(tick)} ms" for tick in power_ticks(y.low, y.high)}
    x = Scale(0.0, points[-1].rate_per_s * 1.05, room_for(ticks.values()), WIDTH - 14.0)
    rates = {tick: f"{tick:g}" for tick in round_ticks(0.0, x.high, about=6)}
    coordinates = [(x(point.rate_per_s), y(value)) for point, value in zip(points, times_ms, strict=True)]
    best = highest_rate(result)
    budget = y(result.budget_ms)
    parts = [
        *y_axis(x, y, ticks),
        *x_axis(x, y, rates, "requests per second, as they arrive"),
        element("rect", x=x.start, y=y.end, width=x.end - x.start, height=budget - y.end, class_="out"),
        line(x.start, budget, x.end, budget, class_="gate"),
        label(f"budget {result.budget_ms:g} ms", x.start + 6, budget - 5, class_="name strong"),
        curve(coordinates, "series colour1 dash1"),
    ]
    for point, (cx, cy) in zip(points, coordinates, strict=True):
        kept = "dot chosen" if holds(point, result) else "dot broke"
        parts.append(element("circle", cx=cx, cy=cy, r=4, class_=kept))
        if point is best:
            parts.append(element("circle", cx=cx, cy=cy, r=8, class_="ring"))
    title = f"p{result.share:g} latency of {result.candidate} by rate of arrivals, budget {result.budget_ms:g} ms"
    return picture(252.0, title, *parts)


def time_bars(splits: Sequence[TimeSplit]) -> Markup:
    """One stacked bar a candidate and wire; a part that came out below zero by subtraction has no width."""
    words = {split: f"{split.total_ns / 1e6:.3g} ms" for split in splits}
    longest = max(sum(max(0.0, part.mean_ns) for part in split.parts) for split in splits)
    scale = Scale(0.0, longest, 2.0, WIDTH - room_for(words.values()))
    pitch, height = 42.0, 16.0
    parts = []
    for row, split in enumerate(splits):
        top = pitch * row
        over = f" over {split.wire}" if split.wire else ", in process"
        parts.append(label(f"{split.candidate}{over}", 2.0, top + 13, class_="name"))
        spent_ns = 0.0
        for part in split.parts:
            wide = scale(max(0.0, part.mean_ns)) - scale(0.0)
            if wide > 0.2:
                style = f"part part-{part.name}"
                parts.append(element("rect", x=scale(spent_ns), y=top + 18, width=wide, height=height, class_=style))
            spent_ns += max(0.0, part.mean_ns)
        parts.append(label(words[split], scale(spent_ns) + 6, top + 18 + height / 2 + 4, class_="value"))
    title = "Where the time of one text goes: " + "; ".join(
        f"{split.candidate} {split.wire or 'in process'} {words[split]}" for split in splits
    )
    return picture(pitch * len(splits) + 2, title, *parts)
