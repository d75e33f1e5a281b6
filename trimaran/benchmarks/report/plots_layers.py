"""The picture of a search for mixed precision: what each layer costs, and how the loss fell step by step."""

from __future__ import annotations

from trimaran.benchmarks.report.plots import WIDTH
from trimaran.benchmarks.report.svg import Scale, element, label, line, picture, round_ticks
from trimaran.benchmarks.report.wording import metric_name, number
from trimaran.judging.sensitivity import Sensitivity

MOST_LAYERS = 24


def layer_bars(found: Sensitivity) -> str:
    """The costliest layers, in the graph's order, with intervals; filled where the layer was kept in float."""
    tried = [layer for layer in found.layers if layer.cost is not None]
    costly = sorted(tried, key=lambda layer: -abs(layer.cost or 0.0))[:MOST_LAYERS]
    layers = [layer for layer in tried if layer in costly]
    high = max((layer.high or layer.cost or 0.0 for layer in layers), default=1.0)
    low = min(0.0, *((layer.low or 0.0) for layer in layers)) if layers else 0.0
    scale = Scale(low, max(high, 1e-12) * 1.15, 8.0, WIDTH - 8.0)
    pitch = 27.0
    bottom = pitch * len(layers) + 6
    parts = [
        line(scale(tick), 0, scale(tick), bottom, class_="grid")
        + label(number(tick), scale(tick), bottom + 13, text_anchor="middle", class_="tick")
        for tick in round_ticks(scale.low, scale.high, about=4)
    ]
    for row, layer in enumerate(layers):
        top = pitch * row
        cost = layer.cost or 0.0
        begin, end = sorted((scale(0.0), scale(cost)))
        style = "bar chosen" if layer.kept == "float" else "bar"
        kept = " · kept in float" if layer.kept == "float" else ""
        parts.append(label(f"{layer.name}{kept}", scale(0.0) + 2, top + 11, class_="name"))
        parts.append(element("rect", x=begin, y=top + 14, width=max(1.0, end - begin), height=9, rx=2, class_=style))
        if layer.low is not None and layer.high is not None:
            parts.append(line(scale(layer.low), top + 18.5, scale(layer.high), top + 18.5, class_="whisker"))
    title = f"How much {metric_name(found.metric)} one layer alone in INT8 adds"
    return picture(WIDTH, bottom + 20, title, *parts)


def search_steps(found: Sensitivity) -> str | None:
    """The loss and the upper end of its interval, by the number of layers in float."""
    steps = sorted({step.kept: step for step in found.steps}.values(), key=lambda step: step.kept)
    if len(steps) < 2:
        return None
    x = Scale(steps[0].kept, steps[-1].kept, 48.0, WIDTH - 14.0)
    y = Scale(0.0, max(step.high for step in steps) * 1.1, 190.0, 12.0)
    parts = [
        line(x.start, y(tick), x.end, y(tick), class_="grid")
        + label(number(tick), x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick in round_ticks(0.0, y.high, about=4)
    ]
    parts += [
        label(f"{tick:g}", x(tick), y.start + 15, text_anchor="middle", class_="tick")
        for tick in round_ticks(x.low, x.high, about=6)
        if tick == int(tick)
    ]
    for style, values in (("series s2", [s.high for s in steps]), ("series s1", [s.value for s in steps])):
        path = "".join(
            f"{'L' if index else 'M'}{x(step.kept):.1f} {y(value):.1f}"
            for index, (step, value) in enumerate(zip(steps, values, strict=True))
        )
        parts.append(element("path", d=path, class_=style))
    parts += [
        element("circle", cx=x(s.kept), cy=y(s.value), r=3.6, class_="dot chosen" if s.holds else "dot broke")
        for s in steps
    ]
    last = steps[-1]
    parts.append(label("upper end", x.end - 4, y(last.high) - 7, text_anchor="end", class_="tick"))
    parts.append(label("mean", x.end - 4, min(y(last.value) + 17, y.start - 4), text_anchor="end", class_="tick"))
    parts.append(label("layers in float", (x.start + x.end) / 2, y.start + 31, text_anchor="middle"))
    return picture(WIDTH, 228.0, f"{metric_name(found.metric)} by number of layers in float", *parts)
