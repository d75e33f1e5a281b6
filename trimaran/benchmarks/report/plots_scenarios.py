"""The pictures of scenarios: shapes as a heat map, load curves with the knee, and where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimaran.benchmarks.report.plots import WIDTH
from trimaran.benchmarks.report.svg import Scale, element, label, line, picture, power_ticks, round_ticks
from trimaran.benchmarks.report.wording import milliseconds
from trimaran.benchmarks.scenarios.finals import highest_rate, holds, knee, throughput
from trimaran.benchmarks.scenarios.results import ClosedLoop, OpenLoop, ShapeGrid
from trimaran.benchmarks.scenarios.time_parts import TimeSplit
from trimaran.core.samples import Shape
from trimaran.judging.stats import median, percentile

PARTS = ("tokenise", "compute", "queue", "stage", "tensors", "wire")


def cell_medians(result: ShapeGrid) -> dict[Shape, int]:
    """Median nanoseconds of each shape that has samples."""
    pooled = {cell.shape: [s for turn in cell.rounds for s in turn.samples_ns] for cell in result.cells}
    return {shape: median(samples) for shape, samples in pooled.items() if samples}


def heat_map(result: ShapeGrid, reference: ShapeGrid | None) -> str:
    """One cell a shape, darker is faster: by speed-up over eager where that was run too, else by rows per second."""
    found = cell_medians(result)
    base = cell_medians(reference) if reference and reference is not result else {}
    ratios = {shape: base[shape] / time for shape, time in found.items() if shape in base}
    rates = {shape: shape.batch * 1e9 / time for shape, time in found.items()}
    shown: Mapping[Shape, float] = ratios if len(ratios) == len(found) else rates
    batches = sorted({shape.batch for shape in found})
    sequences = sorted({shape.sequence for shape in found})
    left, head, height = 54.0, 24.0, 38.0
    width = (WIDTH - left - 2) / len(sequences)
    # From "as fast as eager" on, so that cells which differ by noise alone look alike.
    low, high = min(1.0 if shown is ratios else 0.0, *shown.values()), max(shown.values())
    parts = [label("tokens", left - 6, head - 6, text_anchor="end", class_="tick")]
    parts += [
        label(str(sequence), left + width * (column + 0.5), head - 6, text_anchor="middle", class_="tick strong")
        for column, sequence in enumerate(sequences)
    ]
    for row, batch in enumerate(batches):
        top = head + height * row
        words = "1 row" if batch == 1 else f"{batch} rows"
        parts.append(label(words, left - 6, top + height / 2 + 4, text_anchor="end", class_="tick strong"))
        for column, sequence in enumerate(sequences):
            shape = Shape(batch=batch, sequence=sequence)
            if shape not in found:
                continue
            strength = 0.06 + 0.36 * (shown[shape] - low) / ((high - low) or 1.0)
            told = f"{shown[shape]:.2f}×" if shown is ratios else f"{shown[shape]:.0f}/s"
            parts.append(_cell(left + width * column, top, width, height, strength, told, found[shape]))
    what = "Speed-up over eager PyTorch" if shown is ratios else "Rows per second"
    bottom = head + height * len(batches) + 4
    return picture(WIDTH, bottom, f"{what} of {result.candidate} by batch and tokens", *parts)


def _cell(x: float, y: float, width: float, height: float, strength: float, told: str, time_ns: int) -> str:
    middle = x + width / 2
    return element(
        "g",
        element("rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2, rx=4, class_="cell"),
        element(
            "rect", x=x + 1, y=y + 1, width=width - 2, height=height - 2, rx=4, class_="heat", fill_opacity=strength
        ),
        label(told, middle, y + height / 2 + 1, text_anchor="middle", class_="value bare"),
        label(f"{milliseconds(time_ns)} ms", middle, y + height / 2 + 13, text_anchor="middle", class_="tick bare"),
    )


def load_curves(result: ClosedLoop) -> str | None:
    """Throughput above, p50 and p99 below, against the number of callers; the knee is marked in both."""
    points = [point for point in result.points if point.latencies_ns]
    bend = knee(result)
    if len(points) < 2 or bend is None:
        return None
    x = Scale(points[0].concurrency, points[-1].concurrency, 44.0, WIDTH - 14.0, logarithmic=True)
    rates = [throughput(point) for point in points]
    upper = Scale(0.0, max(rates) * 1.12, 128.0, 14.0)
    p50, p99 = ([percentile(point.latencies_ns, share) / 1e6 for point in points] for share in (50, 99))
    lower = Scale(0.0, max(p99) * 1.12, 272.0, 158.0)
    xs = [x(point.concurrency) for point in points]
    at = x(bend.concurrency)
    leftward = at > WIDTH * 0.6
    parts = [
        *_grid(upper, x, [f"{tick:g}/s" for tick in round_ticks(0, upper.high, about=4)], about=4),
        *_grid(lower, x, [f"{tick:g} ms" for tick in round_ticks(0, lower.high, about=4)], about=4),
        line(at, upper.end, at, lower.start, class_="gate"),
        label(
            f"knee: {bend.concurrency} callers" if bend.concurrency > 1 else "knee: 1 caller",
            at + (-6 if leftward else 6),
            upper.start - 8,
            text_anchor="end" if leftward else "start",
            class_="name strong",
        ),
        _curve(xs, [upper(rate) for rate in rates], "series s1 picked"),
        _curve(xs, [lower(value) for value in p99], "series s2"),
        _curve(xs, [lower(value) for value in p50], "series s1"),
        label("p99", xs[-1] - 4, lower(p99[-1]) - 8, text_anchor="end", class_="name"),
        label("p50", xs[-1] - 4, min(lower(p50[-1]) + 20, lower.start - 4), text_anchor="end", class_="name"),
        *(
            label(str(point.concurrency), at_x, lower.start + 15, text_anchor="middle", class_="tick")
            for point, at_x in zip(points, xs, strict=True)
        ),
        label("callers at once (logarithmic)", (x.start + x.end) / 2, lower.start + 31, text_anchor="middle"),
    ]
    return picture(WIDTH, 310.0, f"Throughput and latency of {result.candidate} by number of callers", *parts)


def rate_curve(result: OpenLoop) -> str | None:
    """The watched percentile against the rate of arrivals, with the budget and the highest rate that kept it."""
    points = sorted((p for p in result.points if p.latencies_ns), key=lambda point: point.rate_per_s)
    if len(points) < 2:
        return None
    times_ms = [percentile(point.latencies_ns, result.share) / 1e6 for point in points]
    x = Scale(0.0, points[-1].rate_per_s * 1.05, 44.0, WIDTH - 14.0)
    lowest = min([*times_ms, result.budget_ms])
    y = Scale(lowest / 1.4, max([*times_ms, result.budget_ms]) * 1.3, 214.0, 14.0, logarithmic=True)
    best = highest_rate(result)
    parts = [
        line(x.start, y(tick), x.end, y(tick), class_="grid")
        + label(f"{tick:g} ms", x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick in power_ticks(y.low, y.high)
    ]
    parts += [
        label(f"{tick:g}", x(tick), y.start + 15, text_anchor="middle", class_="tick")
        for tick in round_ticks(0.0, x.high, about=6)
    ]
    parts += [
        element("rect", x=x.start, y=y.end, width=x.end - x.start, height=y(result.budget_ms) - y.end, class_="out"),
        line(x.start, y(result.budget_ms), x.end, y(result.budget_ms), class_="gate"),
        label(f"budget {result.budget_ms:g} ms", x.start + 6, y(result.budget_ms) - 5, class_="name strong"),
        _curve([x(p.rate_per_s) for p in points], [y(value) for value in times_ms], "series s1"),
    ]
    for point, value in zip(points, times_ms, strict=True):
        kept = "dot chosen" if holds(point, result) else "dot broke"
        parts.append(element("circle", cx=x(point.rate_per_s), cy=y(value), r=4, class_=kept))
        if point is best:
            parts.append(element("circle", cx=x(point.rate_per_s), cy=y(value), r=8, class_="ring"))
    parts.append(label("requests per second, as they arrive", (x.start + x.end) / 2, 245, text_anchor="middle"))
    title = f"p{result.share:g} latency of {result.candidate} by rate of arrivals, budget {result.budget_ms:g} ms"
    return picture(WIDTH, 252.0, title, *parts)


def time_bars(splits: Sequence[TimeSplit]) -> str:
    """One stacked bar a candidate and wire; a part that a subtraction put below zero has no width."""
    longest = max(split.total_ns for split in splits)
    scale = Scale(0.0, longest * 1.18 / 1e6, 2.0, WIDTH - 2.0)
    pitch, height = 42.0, 16.0
    parts = []
    for row, split in enumerate(splits):
        top = pitch * row
        over = f" over {split.wire}" if split.wire else ", in process"
        parts.append(label(f"{split.candidate}{over}", 2.0, top + 13, class_="name"))
        at = 0.0
        for part in split.parts:
            width_ms = max(0.0, part.mean_ns / 1e6)
            wide = max(0.0, scale(width_ms) - scale(0.0))
            if wide > 0.2:
                style = f"part part-{part.name}"
                parts.append(element("rect", x=scale(at), y=top + 18, width=wide, height=height, class_=style))
            at += width_ms
        told = f"{split.total_ns / 1e6:.3g} ms"
        parts.append(label(told, scale(at) + 6, top + 18 + height / 2 + 4, class_="value"))
    title = "Where the time of one text goes: " + "; ".join(
        f"{split.candidate} {' '.join(filter(None, (split.wire,)))} {split.total_ns / 1e6:.3g} ms" for split in splits
    )
    return picture(WIDTH, pitch * len(splits) + 2, title, *parts)


def _curve(xs: Sequence[float], ys: Sequence[float], style: str) -> str:
    path = "".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(zip(xs, ys, strict=True)))
    return element("path", d=path, class_=style)


def _grid(y: Scale, x: Scale, words: Sequence[str], *, about: int) -> list[str]:
    return [
        line(x.start, y(tick), x.end, y(tick), class_="grid")
        + label(text, x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick, text in zip(round_ticks(0.0, y.high, about=about), words, strict=True)
    ]
