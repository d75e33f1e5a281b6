"""The drawing vocabulary of the plots: escaped elements, scales, ticks, axes, curves and horizontal bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

# Drawn about as wide as a phone, so that 11-unit letters stay readable there; wider pages show several side by side.
WIDTH = 370.0
_LETTER = 6.4  # width of one letter of a label, a little generous


def element(tag: str, *content: str, **attributes: object) -> Markup:
    """`element("text", words, text_anchor="end")`. Content and attributes are escaped, unless they are markup."""
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{pairs}>{''.join(map(escape, content))}</{tag}>")  # noqa: S704  (every part is escaped)


def label(text: str, x: float, y: float, **attributes: object) -> Markup:
    return element("text", text, x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def curve(points: Iterable[tuple[float, float]], style: str) -> Markup:
    """Straight lines from point to point."""
    path = "".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
    return element("path", d=path, class_=style)


def picture(height: float, title: str, *content: str) -> Markup:
    """Inline in HTML, so without the namespace that a file of its own would need."""
    return element(
        "svg",
        element("title", title),
        *content,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=title,
        class_="plot",
    )


@dataclass(frozen=True)
class Scale:
    """From numbers to picture units, linear or by powers of ten."""

    # The numbers at both ends.
    low: float
    high: float
    # Where these ends are in the picture.
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.logarithmic
            else (self.low, self.high, value)
        )
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1.0)

    @property
    def middle(self) -> float:
        return (self.start + self.end) / 2


def room_for(words: Iterable[str], *, least: float = 34.0) -> float:
    """Picture units that the longest of these labels needs beside an axis."""
    return max([least, *(8 + _LETTER * len(text) for text in words)])


def y_axis(x: Scale, y: Scale, ticks: Mapping[float, str], *, level: float | None = None) -> list[Markup]:
    """A grid line and a label on the left for each tick; the one at `level` is dashed and stands out."""
    return [
        line(x.start, y(tick), x.end, y(tick), class_="level" if tick == level else "grid")
        + label(words, x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick, words in ticks.items()
    ]


def x_axis(
    x: Scale, y: Scale, ticks: Mapping[float, str], name: str = "", *, grid: bool = False, level: float | None = None
) -> list[Markup]:
    """A label below for each tick, with a grid line where asked for, and the axis's name under them."""
    parts = [label(words, x(tick), y.start + 15, text_anchor="middle", class_="tick") for tick, words in ticks.items()]
    if grid:
        parts += [line(x(tick), y.start, x(tick), y.end, class_="level" if tick == level else "grid") for tick in ticks]
    return [*parts, *([label(name, x.middle, y.start + 31, text_anchor="middle")] if name else [])]


class Bar(NamedTuple):
    """One horizontal bar with its name above it."""

    name: str
    value: float
    # Beside the bar.
    words: str
    style: str
    # The ends of the interval, drawn as a whisker.
    low: float | None = None
    high: float | None = None


def bar_chart(
    title: str,
    bars: Sequence[Bar],
    *,
    low: float = 0.0,
    high: float,
    ticks: Mapping[float, str],
    level: float | None = None,
    mark: tuple[float, str] | None = None,
) -> Markup:
    """Horizontal bars from zero. `level` is a dashed grid line; `mark` is a line over the bars with its name above."""
    head, pitch, thickness = 20.0 if mark else 2.0, 36.0, 12.0
    scale = Scale(low, high, 2.0, WIDTH - room_for((bar.words for bar in bars), least=8.0))
    down = Scale(0, 1, head + pitch * len(bars) + 4, head)
    parts = x_axis(scale, down, ticks, grid=True, level=level)
    if mark:
        middle = max(scale(mark[0]), len(mark[1]) * _LETTER / 2)
        parts.append(label(mark[1], middle, head - 9, text_anchor="middle", class_="tick strong"))
    for index, bar in enumerate(bars):
        top = head + pitch * index + 17
        middle = top + thickness / 2
        begin, end = sorted((scale(0.0), scale(bar.value)))
        parts.append(label(bar.name, scale(0.0), top - 5, class_="name"))
        parts.append(
            element("rect", x=begin, y=top, width=max(1.0, end - begin), height=thickness, rx=2, class_=bar.style)
        )
        if mark:
            parts.append(line(scale(mark[0]), top - 2, scale(mark[0]), top + thickness + 2, class_="one"))
        if bar.low is not None and bar.high is not None:
            ends = [line(scale(at), middle - 4, scale(at), middle + 4, class_="whisker") for at in (bar.low, bar.high)]
            parts += [line(scale(bar.low), middle, scale(bar.high), middle, class_="whisker"), *ends]
        right = max(scale(bar.value), scale(bar.high if bar.high is not None else bar.value))
        parts.append(label(bar.words, right + 7, middle + 4, class_="value"))
    return picture(down.start + 22, title, *parts)


def round_ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 inside [low, high], not many more than `about`."""
    span = (high - low) or 1.0
    power = 10 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def power_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, … inside [low, high]: at most about six, fewer per power of ten where the range is wide."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [factor * 10.0**exponent for exponent in exponents for factor in factors]
        inside = [value for value in ticks if low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)]
        if len(inside) <= 6:
            return inside
    return inside


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart so that neighbours are at least `gap` away, inside [low, high] if they fit."""
    order = sorted(range(len(positions)), key=positions.__getitem__)
    placed = [0.0] * len(positions)
    previous = low - gap
    for index in order:
        previous = placed[index] = max(positions[index], previous + gap)
    following = high + gap
    for index in reversed(order):
        following = placed[index] = min(placed[index], following - gap)
    return placed


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
