"""The pictures of growth: cost against what grows, with the expected order beside it."""

from __future__ import annotations

from collections.abc import Sequence

from growth_results import Curve, Growth, Served

from trimaran.benchmarks.report.report import REFERENCE
from trimaran.benchmarks.report.svg import WIDTH, Scale, element, label, line, picture, power_ticks, round_ticks
from trimaran.judging.stats import median

TITLES = {"length": "tokens in one text", "batch": "rows of 128 tokens", "size": "weights of the layers, 128 tokens"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, WIDTH - 14.0, 12.0, 214.0


def curve_plot(curve: Curve, engine: str) -> str:
    """Both axes logarithmic; the dashed line is the number of operations, laid through the engine's last point."""
    xs = [point.x for point in curve.points]
    lines = {
        name: [value * 1e3 for point in curve.points if (value := point.seconds(name))] for name in (REFERENCE, engine)
    }
    last = curve.points[-1]
    expected = [lines[engine][-1] * point.operations / last.operations for point in curve.points]
    values = [value for series in (*lines.values(), expected) for value in series]
    x = Scale(xs[0], xs[-1], _LEFT, _RIGHT, logarithmic=True)
    y = Scale(min(values) / 1.3, max(values) * 1.3, _BOTTOM, _TOP, logarithmic=True)
    parts = [
        line(x.start, y(tick), x.end, y(tick), class_="grid")
        + label(_time(tick), x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick in power_ticks(y.low, y.high)
    ]
    parts += [
        label(point.words or str(point.x), x(point.x), y.start + 15, text_anchor="middle", class_="tick")
        for point in curve.points
    ]
    drawn = {"expected order": (expected, "series reference"), "INT8 engine": (lines[engine], "series picked"),
             REFERENCE: (lines[REFERENCE], "series colour2 dash2")}  # fmt: skip
    for series, style in drawn.values():
        parts.append(_path([x(at) for at in xs], [y(value) for value in series], style))
    parts += [*_legend({name: style for name, (_, style) in drawn.items()})]
    parts.append(label(TITLES[curve.name], (x.start + x.end) / 2, y.start + 31, text_anchor="middle"))
    return picture(296.0, f"Milliseconds by {TITLES[curve.name]}", *parts)


def served_plot(served: Sequence[Served]) -> str:
    """Memory and one model's latency by the number of models in one server."""
    x = Scale(0.0, served[-1].models * 1.05, _LEFT, _RIGHT)
    memory = [one.memory_bytes / 1e6 for one in served]
    latency = [median(one.latencies_ns) / 1e6 for one in served]
    upper, lower = Scale(0.0, max(memory) * 1.12, 104.0, _TOP), Scale(0.0, max(latency) * 1.3, _BOTTOM, 128.0)
    xs = [x(one.models) for one in served]
    slope = (memory[-1] - memory[0]) / max(1, served[-1].models - served[0].models)
    expected = [memory[0] + slope * (one.models - served[0].models) for one in served]
    parts = []
    for scale, unit in ((upper, "MB"), (lower, "ms")):
        parts += [
            line(x.start, scale(tick), x.end, scale(tick), class_="grid")
            + label(f"{tick:g} {unit}", x.start - 5, scale(tick) + 4, text_anchor="end", class_="tick")
            for tick in round_ticks(0.0, scale.high, about=4)
        ]
    parts += [
        _path(xs, [upper(value) for value in expected], "series reference"),
        _path(xs, [upper(value) for value in memory], "series picked"),
        _path(xs, [lower(latency[0])] * len(xs), "series reference"),
        _path(xs, [lower(value) for value in latency], "series colour2 dash2"),
        *(label(str(one.models), at, _BOTTOM + 15, text_anchor="middle", class_="tick")
          for one, at in zip(served, xs, strict=True)),
        *_legend(
            {"expected order": "series reference", "memory": "series picked", "p50 of one": "series colour2 dash2"}
        ),
        label("models in one server", (x.start + x.end) / 2, _BOTTOM + 31, text_anchor="middle"),
    ]  # fmt: skip
    return picture(296.0, "Memory and latency by number of models served", *parts)


def plots(found: Growth) -> dict[str, str]:
    drawn = {f"growth-{curve.name}.svg": curve_plot(curve, found.engine) for curve in found.curves}
    return {**drawn, **({"growth-served.svg": served_plot(found.served)} if len(found.served) > 1 else {})}


def _time(milliseconds: float) -> str:
    return f"{milliseconds:g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"


def _path(xs: Sequence[float], ys: Sequence[float], style: str) -> str:
    points = zip(xs, ys, strict=True)
    path = "".join(f"{'L' if index else 'M'}{a:.1f} {b:.1f}" for index, (a, b) in enumerate(points))
    return element("path", d=path, class_=style)


def _legend(styles: dict[str, str]) -> list[str]:
    at = _LEFT
    parts = []
    for name, style in styles.items():
        parts.append(element("path", d=f"M{at:.1f} 274H{at + 24:.1f}", class_=style))
        parts.append(label(name, at + 29, 278, class_="name"))
        at += 29 + 6.6 * len(name) + 16
    return parts
