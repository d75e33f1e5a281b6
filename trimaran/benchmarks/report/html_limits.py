"""The section of the HTML report that says how near the limit of this CPU each candidate is."""

from __future__ import annotations

from trimaran.benchmarks.report.html_parts import figure, numbers, panels
from trimaran.benchmarks.report.html_tables import table
from trimaran.benchmarks.report.limits import Share, peak, shares
from trimaran.benchmarks.report.plots import WIDTH
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.svg import Scale, element, label, line, picture
from trimaran.benchmarks.report.wording import VERDICT_MARKS, milliseconds
from trimaran.core.samples import Shape


def limits(report: Report) -> str:
    found = shares(report)
    if not found:
        return ""
    drawings = [figure(f"Share at {c.shape}", share_bars(found, c.shape)) for c in report.ceilings]
    rows = [
        [one.candidate, str(one.shape), one.arithmetic, milliseconds(one.bare_seconds * 1e9),
         milliseconds(one.seconds * 1e9), f"{one.share:.0%}"]
        for one in found
    ]  # fmt: skip
    heads = ["candidate", "shape", "arithmetic", "bare products, ms", "candidate, ms", "share"]
    products = [
        [
            f"{bare.product.count} × {bare.product.batch} × ({bare.product.rows} x {bare.product.inner} by "
            f"{bare.product.inner} x {bare.product.columns})",
            str(ceiling.shape),
            bare.arithmetic,
            bare.library,
            f"{bare.operations_per_s / 1e9:.0f}",
        ]
        for ceiling in report.ceilings
        for bare in ceiling.bare
    ]
    return (
        "<h2>How near the limit</h2><p>The ceiling is measured: every matrix product of the model, bare, by the "
        f"fastest kernel at hand. {peaks_words(report)} A candidate's share is the time of those products over its "
        "own; the rest goes to all that is no product, and to slower kernels. Where integers do not help, the float "
        f"product counts.</p>{panels(drawings)}"
        + numbers("shares", table(heads, rows))
        + numbers("products", table(["product", "shape", "arithmetic", "library", "10⁹ operations/s"], products))
    )


def peaks_words(report: Report) -> str:
    """`At 32x128 floats reach 120 and integers 560 · 10⁹ operations per second.`"""
    ceiling = max(report.ceilings, key=lambda one: one.shape.batch * one.shape.sequence)
    floats, integers = (peak(ceiling, arithmetic) / 1e9 for arithmetic in ("float32", "int8"))
    return f"At {ceiling.shape} floats reach {floats:.0f} and integers {integers:.0f} · 10⁹ operations per second."


def share_bars(found: tuple[Share, ...], shape: Shape) -> str:
    mine = [one for one in found if one.shape == shape]
    scale = Scale(0.0, max(1.0, *(one.share for one in mine)), 2.0, WIDTH - 46.0)
    pitch = 32.0
    bottom = pitch * len(mine) + 4
    parts = [
        line(scale(tick), 0, scale(tick), bottom, class_="level" if tick == 1 else "grid")
        + label(f"{tick:.0%}", scale(tick), bottom + 13, text_anchor="middle", class_="tick")
        for tick in (0.25, 0.5, 0.75, 1.0)
    ]
    for row, one in enumerate(mine):
        top = pitch * row
        name = f"{VERDICT_MARKS[one.verdict]} {one.candidate}, {one.arithmetic}"
        width = max(1.0, scale(one.share) - scale(0.0))
        style = f"bar {one.verdict}"
        parts.append(label(name, 2.0, top + 12, class_="name"))
        parts.append(element("rect", x=scale(0.0), y=top + 17, width=width, height=11, rx=2, class_=style))
        parts.append(label(f"{one.share:.0%}", scale(one.share) + 6, top + 27, class_="value"))
    told = ", ".join(f"{one.candidate} {one.share:.0%}" for one in mine)
    return picture(WIDTH, bottom + 18, f"Share of the measured ceiling at {shape}: {told}", *parts)
