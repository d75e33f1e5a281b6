"""What one run of `growth.py` found, as it is committed, and the plots that are drawn from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from experiment import RESULTS
from markupsafe import Markup
from pydantic import ConfigDict, Field

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.report import REFERENCE, json_of
from trimaran.benchmarks.report.svg import (
    WIDTH,
    Scale,
    curve,
    label,
    picture,
    power_ticks,
    round_ticks,
    x_axis,
    y_axis,
)
from trimaran.core.environment import Environment
from trimaran.core.spec import Frozen
from trimaran.judging.stats import median

RESULT = RESULTS / "growth.json"
TITLES = {"length": "tokens in one text", "batch": "rows of 128 tokens", "size": "weights of the layers, 128 tokens"}
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, WIDTH - 14.0, 12.0, 214.0
_EXPECTED, _ENGINE, _OTHER = "series reference", "series picked", "series colour2 dash2"


class Point(Frozen):
    """One place of a curve: eager and the engine measured side by side."""

    x: int
    words: str = ""
    # Of the model's matrix products.
    operations: int
    measurements: tuple[Measurement, ...]

    def seconds(self, candidate: str) -> float | None:
        timed = next((one for one in self.measurements if one.candidate == candidate), None)
        return median(timed.samples_ns) / 1e9 if timed else None


class Curve(Frozen):
    name: Literal["length", "batch", "size"]
    unit: str
    points: tuple[Point, ...]
    # Share of the cores that other processes used meanwhile.
    others_share: float | None = None


class ServedModels(Frozen):
    """Several models in one server."""

    models: int
    # Until the server was ready.
    started_ns: int
    # After all were asked.
    memory_bytes: int
    # Of one of them.
    latencies_ns: tuple[int, ...]


class Growth(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    environment: Environment
    threads: int
    engine: str
    curves: tuple[Curve, ...]
    served: tuple[ServedModels, ...] = ()

    def to_json(self) -> str:
        return json_of(self)


def read_growth(path: Path = RESULT) -> Growth:
    return Growth.model_validate_json(path.read_text(encoding="utf-8"))


def plots(growth: Growth) -> dict[str, Markup]:
    """By the name of the file."""
    drawn = {f"growth-{one.name}.svg": curve_plot(one, growth.engine) for one in growth.curves}
    return {**drawn, **({"growth-served.svg": served_plot(growth.served)} if len(growth.served) > 1 else {})}


def curve_plot(found: Curve, engine: str) -> Markup:
    """Both axes logarithmic; the dotted line is the number of operations, laid through the engine's last point."""
    xs = [point.x for point in found.points]
    eager, ours = (
        [value * 1e3 for point in found.points if (value := point.seconds(name))] for name in (REFERENCE, engine)
    )
    expected = [ours[-1] * point.operations / found.points[-1].operations for point in found.points]
    x = Scale(xs[0], xs[-1], _LEFT, _RIGHT, logarithmic=True)
    values = [*eager, *ours, *expected]
    y = Scale(min(values) / 1.3, max(values) * 1.3, _BOTTOM, _TOP, logarithmic=True)
    return picture(
        296.0,
        f"Milliseconds by {TITLES[found.name]}",
        *y_axis(x, y, {tick: _time(tick) for tick in power_ticks(y.low, y.high)}),
        *x_axis(x, y, {point.x: point.words or str(point.x) for point in found.points}, TITLES[found.name]),
        *(
            curve(zip(map(x, xs), map(y, series), strict=True), style)
            for series, style in ((expected, _EXPECTED), (ours, _ENGINE), (eager, _OTHER))
        ),
        *_legend({"expected order": _EXPECTED, "INT8 engine": _ENGINE, REFERENCE: _OTHER}),
    )


def served_plot(served: Sequence[ServedModels]) -> Markup:
    """Memory and one model's latency by the number of models in one server."""
    x = Scale(0.0, served[-1].models * 1.05, _LEFT, _RIGHT)
    memory = [one.memory_bytes / 1e6 for one in served]
    latency = [median(one.latencies_ns) / 1e6 for one in served]
    upper, lower = Scale(0.0, max(memory) * 1.12, 104.0, _TOP), Scale(0.0, max(latency) * 1.3, _BOTTOM, 128.0)
    slope = (memory[-1] - memory[0]) / max(1, served[-1].models - served[0].models)
    expected = [memory[0] + slope * (one.models - served[0].models) for one in served]
    lines = (
        (upper, expected, _EXPECTED),
        (upper, memory, _ENGINE),
        (lower, [latency[0]] * len(served), _EXPECTED),
        (lower, latency, _OTHER),
    )
    return picture(
        296.0,
        "Memory and latency by number of models served",
        *y_axis(x, upper, {tick: f"{tick:g} MB" for tick in round_ticks(0.0, upper.high, about=4)}),
        *y_axis(x, lower, {tick: f"{tick:g} ms" for tick in round_ticks(0.0, lower.high, about=4)}),
        *x_axis(x, lower, {one.models: str(one.models) for one in served}, "models in one server"),
        *(
            curve(((x(one.models), scale(value)) for one, value in zip(served, values, strict=True)), style)
            for scale, values, style in lines
        ),
        *_legend({"expected order": _EXPECTED, "memory": _ENGINE, "p50 of one": _OTHER}),
    )


def _time(milliseconds: float) -> str:
    return f"{milliseconds:g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:g} s"


def _legend(styles: Mapping[str, str]) -> list[Markup]:
    at, parts = _LEFT, []
    for name, style in styles.items():
        parts += [curve([(at, 274), (at + 24, 274)], style), label(name, at + 29, 278, class_="name")]
        at += 29 + 6.6 * len(name) + 16
    return parts
