"""A tuning as Markdown and as one HTML file: the choice and its reason first, then the picture and every figure."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from trimaran.benchmarks.measure.quiet import noticed
from trimaran.benchmarks.report.html_parts import figure, page, panels
from trimaran.benchmarks.report.html_tables import scrolling, table
from trimaran.benchmarks.report.plots import WIDTH
from trimaran.benchmarks.report.render_markdown import markdown_line, markdown_text
from trimaran.benchmarks.report.svg import Scale, element, label, line, picture, round_ticks
from trimaran.core.store import write_atomically
from trimaran.pipeline.tune.record import Tried, Tuning
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
    sections = (
        f'<header><p class="kicker">Trimaran tuning</p><h1>{escape(tuning.model)}</h1>'
        f'<p class="facts">version {tuning.version} · {escape(tuning.task)} · for {tuning.objective} · '
        f"{escape(tuning.created)}</p></header>",
        f'<section class="verdict" aria-label="Verdict"><p class="speed">{escape(str(tuning.chosen))}</p>'
        f'<p class="truth">{escape(tuning.reason)}</p></section>',
        f"<h2>Latency against throughput</h2><p>{escape(_how(tuning))}</p>",
        panels([figure("Up and left is better; the line joins what no other setting beats", pareto(tuning))], one=True),
        "<h2>Every setting</h2>",
        scrolling(table(_HEADS, [_cells(tuning, tried) for tried in tuning.tried]), "settings"),
        f'<p class="facts">{escape(_machine(tuning))}</p>',
    )
    return page(f"{tuning.model}: how it is served", sections)


def pareto(tuning: Tuning) -> str:
    """Answers a second with many callers against the median of one caller, a point for each setting."""
    found = tuning.measured
    alone = [1e3 * figures.alone_s for figures in found.values()]
    crowd = [figures.crowd_per_s for figures in found.values()]
    room_x, room_y = (max(values) - min(values) or max(values) for values in (alone, crowd))
    x = Scale(max(0.0, min(alone) - 0.1 * room_x), max(alone) + 0.1 * room_x, 44.0, WIDTH - 8.0)
    y = Scale(max(0.0, min(crowd) - 0.1 * room_y), max(crowd) + 0.15 * room_y, 244.0, 12.0)
    parts = [
        line(x.start, y(tick), x.end, y(tick), class_="grid")
        + label(f"{tick:g}", x.start - 5, y(tick) + 4, text_anchor="end", class_="tick")
        for tick in round_ticks(y.low, y.high)
    ]
    parts += [
        line(x(tick), y.start, x(tick), y.end, class_="grid")
        + label(f"{tick:g}", x(tick), y.start + 15, text_anchor="middle", class_="tick")
        for tick in round_ticks(x.low, x.high)
    ]
    at = {setting: (x(1e3 * figures.alone_s), y(figures.crowd_per_s)) for setting, figures in found.items()}
    path = "".join(f"{'L' if n else 'M'}{at[s][0]:.1f} {at[s][1]:.1f}" for n, s in enumerate(front(found)))
    parts.append(element("path", d=path, class_="front"))
    parts += [_point(tuning, tuning.of(setting), *place) for setting, place in at.items()]
    middle = (x.start + x.end) / 2
    parts.append(label("milliseconds, median of one caller", middle, y.start + 31, text_anchor="middle"))
    parts.append(label(f"answers a second, {tuning.callers} callers", x.start + 4, y.end + 8, class_="tick strong"))
    title = f"Answers a second with {tuning.callers} callers against the median latency of one caller"
    return picture(WIDTH, 284.0, title, *parts)


def _point(tuning: Tuning, tried: Tried, cx: float, cy: float) -> str:
    named = {tuning.present: "before", tuning.chosen: "chosen"}.get(tried.setting, "")
    told = element("title", escape(f"{tried.setting}: {_figures(tried)[0]}, {_figures(tried)[1]}"))
    mark = element("circle", told, cx=cx, cy=cy, r=4.5, class_=f"dot {_DOTS[tried.verdict]}")
    if tried.setting == tuning.chosen:
        mark += element("circle", cx=cx, cy=cy, r=8.5, class_="ring")
    side = -1 if cx > WIDTH / 2 else 1
    anchor = "end" if side < 0 else "start"
    return mark + (label(named, cx + side * 12, cy + 4, text_anchor=anchor, class_="name strong") if named else "")


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


def _cells(tuning: Tuning, tried: Tried) -> list[str]:
    before = " (before)" if tried.setting == tuning.present else ""
    verdict = f"{_MARKS[tried.verdict]} {tried.verdict}{before}"
    return [str(tried.setting), verdict, *_figures(tried), str(len(tried.rounds)), tried.reason]


def _figures(tried: Tried) -> tuple[str, str]:
    if (found := tried.figures) is None:
        return "–", "–"
    return f"{1e3 * found.alone_s:.2f} ms", f"{found.crowd_per_s:.1f}"


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
