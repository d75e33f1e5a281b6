"""The plots of a search for mixed precision: what each layer costs, and how the loss fell step by step."""

from __future__ import annotations

from markupsafe import Markup

from trimaran.benchmarks.report.svg import (
    WIDTH,
    Bar,
    Scale,
    bar_chart,
    curve,
    element,
    label,
    picture,
    room_for,
    round_ticks,
    x_axis,
    y_axis,
)
from trimaran.benchmarks.report.wording import metric_name, number
from trimaran.judging.sensitivity import Sensitivity

MOST_LAYERS = 24


def layer_bars(search: Sensitivity) -> Markup:
    """The costliest layers, in the graph's order, with intervals; filled where the layer was kept in float."""
    tried = [layer for layer in search.layers if layer.cost is not None]
    costliest = sorted(tried, key=lambda layer: -abs(layer.cost or 0.0))[:MOST_LAYERS]
    layers = [layer for layer in tried if layer in costliest]
    bars = [
        Bar(
            f"{layer.name} · kept in float" if layer.kept == "float" else layer.name,
            layer.cost or 0.0,
            "",
            "bar chosen" if layer.kept == "float" else "bar",
            layer.low,
            layer.high,
        )
        for layer in layers
    ]
    low = min([0.0, *(layer.low or 0.0 for layer in layers)])
    high = max([1e-12, *(layer.high or layer.cost or 0.0 for layer in layers)])
    ticks = {tick: number(tick) for tick in round_ticks(low, high, about=4)}
    title = f"How much {metric_name(search.metric)} one layer alone in INT8 adds"
    return bar_chart(title, bars, low=low, high=high, ticks=ticks)


def search_steps(search: Sensitivity) -> Markup | None:
    """The loss and the upper end of its interval, by the number of layers in float; None for a single step."""
    steps = sorted({step.kept: step for step in search.steps}.values(), key=lambda step: step.kept)
    if len(steps) < 2:
        return None
    y = Scale(0.0, max(step.high for step in steps) * 1.1, 190.0, 12.0)
    losses = {tick: number(tick) for tick in round_ticks(0.0, y.high, about=4)}
    x = Scale(steps[0].kept, steps[-1].kept, room_for(losses.values()), WIDTH - 14.0)
    counts = {tick: f"{tick:g}" for tick in round_ticks(x.low, x.high, about=6) if tick == int(tick)}
    last = steps[-1]
    return picture(
        228.0,
        f"{metric_name(search.metric)} by number of layers in float",
        *y_axis(x, y, losses),
        *x_axis(x, y, counts, "layers in float"),
        curve(((x(step.kept), y(step.high)) for step in steps), "series colour2 dash2"),
        curve(((x(step.kept), y(step.value)) for step in steps), "series colour1 dash1"),
        *(
            element(
                "circle", cx=x(step.kept), cy=y(step.value), r=3.6, class_="dot chosen" if step.holds else "dot broke"
            )
            for step in steps
        ),
        label("upper end", x.end - 4, y(last.high) - 7, text_anchor="end", class_="tick"),
        label("mean", x.end - 4, min(y(last.value) + 17, y.start - 4), text_anchor="end", class_="tick"),
    )
