"""A tuning as Markdown and as one HTML file: the choice and its reason first, then the picture and every figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup

from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.report.markdown import markdown_line, markdown_text
from trimaran.benchmarks.report.pages import render_page
from trimaran.benchmarks.report.svg import (
    WIDTH,
    Scale,
    curve,
    element,
    label,
    picture,
    room_for,
    round_ticks,
    x_axis,
    y_axis,
)
from trimaran.core.store import write_atomically
from trimaran.pipeline.tune.record import TriedSetting, Tuning
from trimaran.pipeline.tune.settings import Setting, front

_MARKS = {"chosen": "★", "finalist": "✓", "stopped": "–", "rejected": "✕"}
_DOTS = {"chosen": "chosen", "finalist": "passed", "stopped": "passed"}
_HEADS = ("setting", "verdict", "one caller, p50", "answers a second", "rounds", "why")


def write_tuning(tuning: Tuning, folder: Path) -> dict[str, Path]:
    """Every format into the folder; the paths by file ending."""
    for name, render in FORMATS.items():
        write_atomically(folder / name, render(tuning))
    return {Path(name).suffix.lstrip("."): folder / name for name in FORMATS}


def render_markdown(tuning: Tuning) -> str:
    lines = [
        f"# {markdown_text(tuning.model)}: {markdown_text(str(tuning.chosen))}",
        "",
        markdown_text(tuning.reason),
        "",
        markdown_text(_how(tuning)),
        "",
        markdown_line(list(_HEADS)),
        markdown_line(["---", "---", "---:", "---:", "---:", "---"]),
        *(markdown_line([markdown_text(cell) for cell in _cells(tuning, tried)]) for tried in tuning.tried),
    ]
    return "\n".join(lines) + "\n"


def render_html(tuning: Tuning) -> str:
    return render_page(
        "tuning.html",
        folder=Path(__file__).parent / "templates",
        title=f"{tuning.model}: how it is served",
        tuning=tuning,
        method=_how(tuning),
        plot=pareto(tuning),
        heads=_HEADS,
        rows=[_cells(tuning, tried) for tried in tuning.tried],
        machine=_machine(tuning),
    )


def pareto(tuning: Tuning) -> Markup:
    """Answers a second with many callers against the median of one caller, a point for each setting."""
    measured = tuning.measured
    alone = [1e3 * figures.alone_s for figures in measured.values()]
    crowd = [figures.crowd_per_s for figures in measured.values()]
    room_x, room_y = (max(values) - min(values) or max(values) for values in (alone, crowd))
    y = Scale(max(0.0, min(crowd) - 0.1 * room_y), max(crowd) + 0.15 * room_y, 244.0, 12.0)
    rates = {tick: f"{tick:g}" for tick in round_ticks(y.low, y.high)}
    left = room_for(rates.values(), least=44.0)
    x = Scale(max(0.0, min(alone) - 0.1 * room_x), max(alone) + 0.1 * room_x, left, WIDTH - 8.0)
    times = {tick: f"{tick:g}" for tick in round_ticks(x.low, x.high)}
    points = {setting: (x(1e3 * figures.alone_s), y(figures.crowd_per_s)) for setting, figures in measured.items()}
    return picture(
        284.0,
        f"Answers a second with {tuning.callers} callers against the median latency of one caller",
        *y_axis(x, y, rates),
        *x_axis(x, y, times, "milliseconds, median of one caller", grid=True),
        curve((points[setting] for setting in front(measured)), "front"),
        *(_point(tuning, tuning.of(setting), *point) for setting, point in points.items()),
        label(f"answers a second, {tuning.callers} callers", x.start + 4, y.end + 8, class_="tick strong"),
    )


def _point(tuning: Tuning, tried: TriedSetting, cx: float, cy: float) -> Markup:
    name = {tuning.present: "before", tuning.chosen: "chosen"}.get(tried.setting, "")
    hint = element("title", f"{tried.setting}: {', '.join(_figures(tried))}")
    mark = element("circle", hint, cx=cx, cy=cy, r=4.5, class_=f"dot {_DOTS[tried.verdict]}")
    if tried.setting == tuning.chosen:
        mark += element("circle", cx=cx, cy=cy, r=8.5, class_="ring")
    side = -1 if cx > WIDTH / 2 else 1
    anchor = "end" if side < 0 else "start"
    return mark + (label(name, cx + side * 12, cy + 4, text_anchor=anchor, class_="name strong") if name else "")


def _how(tuning: Tuning) -> str:
    return (
        f"Each setting was served by a real Triton on {tuning.cpus} CPUs, held to {tuning.texts} golden requests "
        f"and asked by one caller, then by {tuning.callers}, over gRPC; caller and server shared the machine. Losing "
        f"settings were stopped early. {tuning.spent_s:.0f} s of {tuning.budget_s:g} s. {busy(tuning)}".rstrip()
    )


def busy(tuning: Tuning) -> str:
    """A sentence when others used the machine too much for the figures to be trusted."""
    return noticed(tuning.others_share, during="the search")


def _machine(tuning: Tuning) -> str:
    machine = tuning.environment
    return f"{machine.cpu}, {machine.cores} cores; {machine.system}; Python {machine.python}."


def _cells(tuning: Tuning, tried: TriedSetting) -> list[str]:
    before = " (before)" if tried.setting == tuning.present else ""
    verdict = f"{_MARKS[tried.verdict]} {tried.verdict}{before}"
    return [str(tried.setting), verdict, *_figures(tried), str(len(tried.rounds)), tried.reason]


def _figures(tried: TriedSetting) -> tuple[str, str]:
    if (figures := tried.figures) is None:
        return "–", "–"
    return f"{1e3 * figures.alone_s:.2f} ms", f"{figures.crowd_per_s:.1f}"


def summary(tuning: Tuning) -> str:
    """For a terminal: the choice, the reason and the best few."""
    rows = [f"{tuning.model} version {tuning.version}: {tuning.chosen}", tuning.reason]
    shown: list[Setting] = [tried.setting for tried in tuning.tried if tried.verdict in ("chosen", "finalist")]
    rows += ["\t".join((_MARKS[t.verdict], str(t.setting), *_figures(t))) for t in map(tuning.of, shown)]
    return "\n".join([*rows, *filter(None, [busy(tuning)])])


FORMATS: dict[str, Callable[[Tuning], str]] = {
    "tuning.json": Tuning.to_json,
    "tuning.md": render_markdown,
    "tuning.html": render_html,
}
