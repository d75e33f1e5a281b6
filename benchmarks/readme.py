"""The figures of the README, made from the committed reports and from nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from trimaran.benchmarks.measure.harness import floor_ns, overhead, twins_verdicts
from trimaran.benchmarks.report.figures import shapes_of, speedups
from trimaran.benchmarks.report.limits import peaks_words, shares
from trimaran.benchmarks.report.pages import svg_file
from trimaran.benchmarks.report.plots import speedup_bars
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.report.wording import count, interval, megabytes, metric_name, metric_words, number, times
from trimaran.benchmarks.scenarios.finals import READINGS, final
from trimaran.core.tasks import task

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures: made by `make bench` -->", "<!-- end of figures -->"
SHOWN = "minilm-strict"
# Pages that are made whole from results or tables, and tested as current by themselves.
GENERATED = {"compare.md", "families.md", "gpu-roofline.md"}
# Parts of a page that are made from results, and tested as current likewise.
BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z-]+): made by [^\n]+ -->\n).*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\d[\d.,]*\s?(?:×|ms\b|µs|(?:texts|tokens|requests|rows)/s)")


def figures_in(text: str) -> set[str]:
    """What a page claims to have measured: speed-ups, times of milliseconds and less, rates. Neither code
    nor what is generated is a claim.
    """
    prose = re.sub(r"```.*?```|`[^`\n]*`", " ", by_hand(text), flags=re.DOTALL)
    return {" ".join(found.split()) for found in _FIGURE.findall(prose)}


def by_hand(text: str) -> str:
    """A page without its generated blocks."""
    return BLOCK.sub("", text)


def held_figures() -> set[str]:
    """Every figure that the committed results hold, as they write it."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(RESULTS.rglob("*.md"))]
    return figures_in("\n".join([*texts, figures_block()]))


def figures_block() -> str:
    """What stands between the README's markers: the verdict, the machine, a table of candidates, one of scenarios."""
    report = read_report(RESULTS / SHOWN)
    shapes = shapes_of(report.measurements)
    headline = task(report.task).headline
    head = ["candidate", *(f"{shape}" for shape in shapes), metric_name(headline), "size", "verdict"]
    lines = [
        f"> {report.verdict}",
        "",
        f"Speed-up over eager PyTorch (95 % interval) on {report.environment.cpu}, "
        f"{count(report.threads, 'thread')}, all-MiniLM-L6-v2, level `{report.level}`, {report.created[:10]}:",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(_cells(report, row.name))} |" for row in (*report.baselines, *report.candidates)),
        *scenario_lines(report),
        *harness_lines(report),
        *ceiling_lines(report),
    ]
    return "\n".join(lines)


def scenario_lines(report: Report) -> list[str]:
    """The final number of every scenario, eager beside the chosen one."""
    names = [report.reference.name, *filter(None, [report.verdict.chosen])]
    found: dict[str, dict[str, str]] = {}
    for result in report.scenarios:
        figure = final(result)
        if figure is None or result.cut or result.candidate not in names:
            continue
        wire = f", {result.wire}" if result.wire else ""
        title = f"{READINGS[result.scenario].title} ({result.at}{wire}): {figure.name}"
        low = f" ({number(figure.low)}–{number(figure.high)})" if figure.low is not None and figure.high else ""
        # Which shape a grid is best at belongs to the cell: it need not be the same for both.
        label, shape = re.fullmatch(r"(.*?)( at \d+x\d+)?", title).groups()
        found.setdefault(label, {})[result.candidate] = f"{number(figure.value)} {figure.unit}{low}{shape or ''}"
    if not found:
        return []
    head = ["scenario", *(f"`{name}`" for name in names)]
    return [
        "",
        "What each scenario ends in (95 % interval; a rate's upper bound is the next one that broke the budget):",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {title} | {' | '.join(cells.get(name, '–') for name in names)} |" for title, cells in found.items()),
    ]


def harness_lines(report: Report) -> list[str]:
    """What the harness does to what it measures."""
    check = report.harness
    cost, floor = (overhead(check), floor_ns(check)) if check else (None, None)
    if check is None or cost is None or floor is None:
        return []
    said = (
        f"The harness itself: a call that does nothing takes {floor / 1e3:.1f} µs; a call of "
        f"{cost.call_ns / 1e6:.2f} ms takes {cost.ratio.median:.4f} times as long as in a bare loop "
        f"({cost.ratio.low:.4f}–{cost.ratio.high:.4f})"
    )
    if check.twins:
        (again, same), (twice, other) = twins_verdicts(check.twins)
        said += (
            f"; `{check.twins.candidate}` against itself is {again.median:.3f}× ({interval(again)}: {same}), "
            f"against itself called twice {twice.median:.3f}× ({interval(twice)}: {other})"
        )
    return ["", f"{said}."]


def ceiling_lines(report: Report) -> list[str]:
    """How near the limit of this CPU the chosen one and eager are, at the largest shape."""
    found = [one for one in shares(report) if one.candidate in (report.verdict.chosen, report.reference.name)]
    if not found:
        return []
    largest = max((one.shape for one in found), key=lambda shape: shape.batch * shape.sequence)
    said = ", ".join(f"`{one.candidate}` {one.share:.0%}" for one in found if one.shape == largest)
    return ["", f"{peaks_words(report)} Share of that ceiling at {largest}: {said}."]


def picture(report: Report) -> str:
    """Speed-ups at the typical shape, as an image file."""
    return svg_file(speedup_bars(report, shapes_of(report.measurements)[1]))


def write_figures() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    (ROOT / "README.md").write_text(f"{before}{BEGIN}\n{figures_block()}\n{END}{after}", encoding="utf-8")
    (RESULTS / SHOWN / "speedup.svg").write_text(picture(read_report(RESULTS / SHOWN)), encoding="utf-8")


def _cells(report: Report, name: str) -> list[str]:
    row = report.row(name)
    ratios = speedups(report.measurements, name, reference=report.reference.name)
    speeds = [
        f"{times(ratio)} ({interval(ratio)})" if (ratio := ratios.get(shape)) else "–"
        for shape in shapes_of(report.measurements)
    ]
    return [
        f"`{name}`",
        *speeds,
        metric_words(row.quality, task(report.task).headline),
        megabytes(row.size_bytes),
        f"**{row.verdict}**" if row.verdict == "chosen" else row.verdict,
    ]


if __name__ == "__main__":
    write_figures()
