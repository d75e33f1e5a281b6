"""The sections of the HTML report that show scenarios: shapes, load, where the time goes, and every final number."""

from __future__ import annotations

from html import escape

from trimaran.benchmarks.report.compare import scenario_words
from trimaran.benchmarks.report.html_parts import figure, joined, legend, numbers, panels
from trimaran.benchmarks.report.html_tables import scrolling, table
from trimaran.benchmarks.report.plots_layers import layer_bars, search_steps
from trimaran.benchmarks.report.plots_scenarios import PARTS, cell_medians, heat_map, load_curves, rate_curve, time_bars
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.svg import element
from trimaran.benchmarks.report.wording import count, figure_words, metric_name, milliseconds, number
from trimaran.benchmarks.scenarios.finals import READINGS, figures_of, holds, scenario_of, throughput
from trimaran.benchmarks.scenarios.results import ClosedLoop, OpenLoop, Result, ShapeGrid
from trimaran.benchmarks.scenarios.time_parts import TimePart, time_splits
from trimaran.judging.stats import percentile


def final_numbers(report: Report) -> str:
    """Each scenario says what its final number is; a cut one is marked and keeps what it found."""
    if not report.scenarios:
        return ""
    order = list(READINGS)
    sections = []
    for name in order:
        results = [result for result in report.scenarios if scenario_of(result) == name]
        if not results:
            continue
        rows = [
            [
                result.candidate,
                scenario_words(result).partition(", ")[2],
                *(_finals(result)),
                result.cut or getattr(result, "unavailable", None) or "",
            ]
            for result in results
        ]
        heads = ["candidate", "level", "final number", "beside it", "remark"]
        reading = READINGS[name]
        sections.append(
            f"<h3>{escape(reading.title)}</h3><p class=note>The final number is {escape(reading.meaning)}.</p>"
            + scrolling(table(heads, rows), reading.title)
        )
    cut = [result for result in report.scenarios if result.cut]
    warning = f"<p>{count(len(cut), 'scenario')} did not get to the end: see the remarks.</p>" if cut else ""
    suite = f" by the suite {escape(report.suite.name)}" if report.suite else ""
    return f"<h2>Scenarios</h2><p>Measured{suite}; times in process and over the wire are of the same texts.</p>" + (
        f"{warning}<details><summary>{count(len(report.scenarios), 'result')}</summary>{joined(sections)}</details>"
    )


def _finals(result: Result) -> tuple[str, str]:
    found = figures_of(result)
    return (figure_words(found[0]), "; ".join(map(figure_words, found[1:]))) if found else ("–", "")


def shapes(report: Report) -> str:
    grids = [r for r in report.scenarios if isinstance(r, ShapeGrid) and cell_medians(r)]
    if not grids:
        return ""
    base = next((grid for grid in grids if grid.candidate == report.reference.name), None)
    drawn = sorted((g for g in grids if g is not base), key=lambda g: g.candidate != report.verdict.chosen) or grids
    pictures = [figure(grid.candidate, heat_map(grid, base)) for grid in drawn]
    rows = [
        [grid.candidate, str(shape), milliseconds(time_ns), f"{shape.batch * 1e9 / time_ns:.0f}"]
        for grid in grids
        for shape, time_ns in cell_medians(grid).items()
    ]
    told = "speed-up over eager PyTorch" if base and base not in drawn else "rows per second"
    return (
        f"<h2>Every shape</h2><p>The {told} by rows in a batch and tokens in a row, stronger is faster; the median "
        f"time of a batch beneath.</p>{panels(pictures)}"
        + numbers("shapes", table(["candidate", "shape", "median ms", "rows/s"], rows))
    )


def load(report: Report) -> str:
    closed = [r for r in report.scenarios if isinstance(r, ClosedLoop)]
    opened = [r for r in report.scenarios if isinstance(r, OpenLoop)]
    drawings = [
        *(figure(f"{r.candidate}, {_over(r)}", drawn) for r in closed if (drawn := load_curves(r))),
        *(figure(f"{r.candidate}, {_over(r)}: arrivals", drawn) for r in opened if (drawn := rate_curve(r))),
    ]
    if not drawings:
        return ""
    closed_rows = [
        [
            r.candidate,
            _over(r),
            str(point.concurrency),
            f"{throughput(point):.1f}",
            *(milliseconds(percentile(point.latencies_ns, share)) for share in (50, 90, 99)),
            str(len(point.latencies_ns)),
            str(point.failures),
        ]
        for r in closed
        for point in r.points
        if point.latencies_ns
    ]
    open_rows = [
        [
            r.candidate,
            _over(r),
            f"{point.rate_per_s:.4g}",
            *(milliseconds(percentile(point.latencies_ns, share)) for share in (50, 90, 99)),
            "kept" if holds(point, r) else "broken",
            str(point.failures),
        ]
        for r in opened
        for point in r.points
        if point.latencies_ns
    ]
    heads = ["candidate", "over", "callers", "requests/s", "p50 ms", "p90 ms", "p99 ms", "answers", "failures"]
    rates = ["candidate", "over", "rate/s", "p50 ms", "p90 ms", "p99 ms", "budget", "failures"]
    tables = joined(
        (
            numbers("callers", table(heads, closed_rows)) if closed_rows else "",
            numbers("arrivals", table(rates, open_rows)) if open_rows else "",
        )
    )
    return (
        "<h2>Under load</h2><p>Callers that ask again as soon as they are answered: beyond the knee, more of them only "
        "wait longer. Arrivals that do not wait for anyone: latency counts from the scheduled moment, and the ring is "
        f"the highest rate that keeps the budget.</p>{panels(drawings)}{tables}"
    )


def where_time_goes(report: Report) -> str:
    splits = time_splits(report.scenarios)
    if not splits:
        return ""
    seen = [name for name in PARTS if any(part.name == name for split in splits for part in split.parts)]
    meanings = {part.name: part.meaning for split in splits for part in split.parts}
    swatches = [
        (element("rect", x=2, y=0, width=30, height=10, rx=2, class_=f"part part-{name}"), f"{name}: {meanings[name]}")
        for name in seen
    ]
    rows = [
        [
            split.candidate,
            split.wire or "in process",
            *(_part_ms(split.parts, name) for name in seen),
            f"{split.total_ns / 1e6:.3g}",
        ]
        for split in splits
    ]
    heads = ["candidate", "over", *(f"{name} ms" for name in seen), "all ms"]
    return (
        "<h2>Where the time goes</h2><p>The mean time of one text as its caller waits for it. The same texts were run "
        "at the engine, from the text on and over the wire; the parts are their differences.</p>"
        + legend(swatches)
        + panels([figure("Milliseconds of one text", time_bars(splits))], one=True)
        + numbers("parts", table(heads, rows))
    )


def layers(report: Report) -> str:
    searched = [(row.name, row.sensitivity) for row in report.candidates if row.sensitivity]
    if not searched:
        return ""
    parts = []
    for name, found in searched:
        kept = sum(layer.kept == "float" for layer in found.layers)
        drawings = [figure(f"{name}: cost of a layer in INT8", layer_bars(found))]
        if steps := search_steps(found):
            drawings.append(figure(f"{name}: loss by layers in float", steps))
        rows = [
            [layer.name, *(number(value) for value in (layer.cost, layer.low, layer.high)), layer.kept]
            for layer in found.layers
        ]
        caption = (
            f"{metric_name(found.metric)} over {count(found.texts, 'text')} that judge nothing else; the search ended "
            f"by «{found.stopped}» after {found.seconds:.0f} s with {count(kept, 'layer')} in float."
        )
        heads = ["layer", "cost in INT8", "low", "high", "runs in"]
        parts.append(panels(drawings) + numbers(f"layers of {name}", table(heads, rows, caption=caption)))
    return (
        "<h2>Layer by layer</h2><p>How much of the loss each layer brings: it alone runs in INT8, all others in float. "
        "With the interval over texts. Green layers were kept in float.</p>" + joined(parts)
    )


def _part_ms(parts: tuple[TimePart, ...], name: str) -> str:
    found = next((part for part in parts if part.name == name), None)
    return "–" if found is None else f"{found.mean_ns / 1e6:.3f}"


def _over(result: ClosedLoop | OpenLoop) -> str:
    return result.wire or "in process"
