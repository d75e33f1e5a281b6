"""The few drawing words that the plots need: escaped elements, scales and round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


def element(tag: str, *content: str, **attributes: object) -> str:
    """`element("text", escaped, text_anchor="end")`; attribute values are escaped, content is taken as markup."""
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{pairs}>{''.join(content)}</{tag}>"


def label(text: str, x: float, y: float, **attributes: object) -> str:
    return element("text", escape(text), x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def picture(width: float, height: float, title: str, *content: str) -> str:
    """Inline in HTML, so without the namespace that a file of its own would need."""
    return element(
        "svg",
        element("title", escape(title)),
        *content,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=title,
        class_="plot",
    )


@dataclass(frozen=True)
class Scale:
    """From numbers to picture units, linear or by powers of ten."""

    low: float
    high: float
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


def round_ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 inside [low, high], not many more than `about`."""
    span = (high - low) or 1.0
    power = 10 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def power_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20, … inside [low, high]: at most about six, thinned where the range is wide."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**exponent for exponent in exponents for factor in factors]
        inside = [value for value in found if low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)]
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
