"""The figures of the README and of docs/results.md, made from the committed reports and from nothing else."""

from __future__ import annotations

import re

from experiment import RESULTS, ROOT, by_hand, plain_table, reports_by_instructions

from trimaran.benchmarks.measure.harness import floor_ns, overhead, twins_verdicts
from trimaran.benchmarks.report.figures import largest, shapes_of, speedups_of
from trimaran.benchmarks.report.limits import peaks_words, shares
from trimaran.benchmarks.report.pages import svg_file
from trimaran.benchmarks.report.plots import speedup_bars
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.wording import (
    INTERVAL_WORDS,
    count,
    interval,
    megabytes,
    metric_name,
    metric_words,
    number,
    ratio_words,
)
from trimaran.benchmarks.scenarios.finals import READINGS, final
from trimaran.core.tasks import task

BEGIN, END = "<!-- figures: made by `make bench` -->", "<!-- end of figures -->"
SHOWN = "minilm-strict"
PICTURE = RESULTS / f"{SHOWN}.svg"
# Pages that are made whole from results or tables. Each has its own test that it is current.
GENERATED = {"compare.md", "families.md", "gpu-roofline.md"}
_FIGURE = re.compile(r"\d[\d.,]*\s?(?:×|ms\b|µs|(?:texts|tokens|requests|rows)/s)")


def figures_in(text: str) -> set[str]:
    """What a page claims to have measured: speed-ups, times below a second, rates.

    Code is not a claim, and neither is what is generated.
    """
    prose = re.sub(r"```.*?```|`[^`\n]*`", " ", by_hand(text), flags=re.DOTALL)
    return {" ".join(figure.split()) for figure in _FIGURE.findall(prose)}


def held_figures() -> set[str]:
    """Every figure that the committed results hold, as they write it."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(RESULTS.rglob("*.md"))]
    return figures_in("\n".join([*texts, figures_block()]))


def short_block() -> str:
    """What stands between the README's markers: the speed of the chosen candidate on each kind of CPU."""
    reports = reports_by_instructions(SHOWN)
    newest = reports[0][1]
    shapes = shapes_of(newest.measurements)
    rows = []
    for instructions, report in reports:
        ratios = speedups_of(report, report.verdict.chosen or "")
        machine = f"{report.environment.cpu}, {instructions}"
        cells = [ratio_words(ratios.get(shape)) for shape in shapes]
        rows.append([machine, report.created[:10], f"`{report.verdict.chosen}`", *cells])
    return "\n".join(
        [
            f"Speed-up over eager PyTorch on {count(newest.threads, 'thread')}, all-MiniLM-L6-v2, level "
            f"`{newest.level}`, at batch x tokens:",
            "",
            plain_table(["CPU", "measured", "chosen", *map(str, shapes)], rows),
        ]
    )


def figures_block() -> str:
    """docs/results.md between its markers, a part for each kind of CPU."""
    parts = [
        f"## A CPU {instructions}\n\n{machine_figures(report)}"
        for instructions, report in reports_by_instructions(SHOWN)
    ]
    return "\n\n".join(parts)


def machine_figures(report: Report) -> str:
    """The verdict, the machine, a table of candidates, one of scenarios."""
    shapes = shapes_of(report.measurements)
    headline = task(report.task).headline
    rows = [
        [
            f"`{row.name}`",
            *(ratio_words(speedups_of(report, row.name).get(shape)) for shape in shapes),
            metric_words(row.quality, headline),
            megabytes(row.size_bytes),
            f"**{row.verdict}**" if row.verdict == "chosen" else row.verdict,
        ]
        for row in report.rows[1:]
    ]
    lines = [
        f"> {report.verdict}",
        "",
        f"Speed-up over eager PyTorch on {report.environment.cpu}, {count(report.threads, 'thread')}, "
        f"all-MiniLM-L6-v2, level `{report.level}`, {report.created[:10]}: {INTERVAL_WORDS}.",
        "",
        plain_table(["candidate", *map(str, shapes), metric_name(headline), "size", "verdict"], rows),
        *scenario_lines(report),
        *harness_lines(report),
        *ceiling_lines(report),
    ]
    return "\n".join(lines)


def scenario_lines(report: Report) -> list[str]:
    """The final number of every scenario, eager beside the chosen candidate."""
    names = [report.reference.name, *filter(None, [report.verdict.chosen])]
    finals: dict[str, dict[str, str]] = {}
    for result in report.scenarios:
        figure = final(result)
        if figure is None or result.cut or result.candidate not in names:
            continue
        wire = f", {result.wire}" if result.wire else ""
        title = f"{READINGS[result.scenario].title} ({result.at}{wire}): {figure.name}"
        bounds = f" ({number(figure.low)}–{number(figure.high)})" if figure.low is not None and figure.high else ""
        # A grid's best shape belongs to the cell, because it need not be the same for both candidates.
        label, shape = re.fullmatch(r"(.*?)( at \d+x\d+)?", title).groups()
        cell = f"{number(figure.value)} {figure.unit}{bounds}{shape or ''}"
        finals.setdefault(label, {})[result.candidate] = cell
    if not finals:
        return []
    rows = ([title, *(cells.get(name, "–") for name in names)] for title, cells in finals.items())
    return [
        "",
        "What each scenario ends in (95 % interval; a rate's upper bound is the next one that broke the budget):",
        "",
        *plain_table(["scenario", *(f"`{name}`" for name in names)], rows).splitlines(),
    ]


def harness_lines(report: Report) -> list[str]:
    """What the harness does to what it measures."""
    check = report.harness
    cost, floor = (overhead(check), floor_ns(check)) if check else (None, None)
    if check is None or cost is None or floor is None:
        return []
    sentence = (
        f"The harness itself: a call that does nothing takes {floor / 1e3:.1f} µs; a call of "
        f"{cost.call_ns / 1e6:.2f} ms takes {cost.ratio.median:.4f} times as long as in a bare loop "
        f"({cost.ratio.low:.4f}–{cost.ratio.high:.4f})"
    )
    if check.twins:
        (again, same), (twice, other) = twins_verdicts(check.twins)
        sentence += (
            f"; `{check.twins.candidate}` against itself is {again.median:.3f}× ({interval(again)}: {same}), "
            f"against itself called twice {twice.median:.3f}× ({interval(twice)}: {other})"
        )
    return ["", f"{sentence}."]


def ceiling_lines(report: Report) -> list[str]:
    """How near the limit of this CPU the chosen candidate and eager are, at the largest shape."""
    reached = [share for share in shares(report) if share.candidate in (report.verdict.chosen, report.reference.name)]
    if not reached:
        return []
    shape = largest([share.shape for share in reached])
    words = ", ".join(f"`{share.candidate}` {share.share:.0%}" for share in reached if share.shape == shape)
    return ["", f"{peaks_words(report)} Share of that ceiling at {shape}: {words}."]


def picture(report: Report) -> str:
    """Speed-ups at the typical shape, as an image file."""
    return svg_file(speedup_bars(report, shapes_of(report.measurements)[1]))


PAGES = {"README.md": short_block, "docs/results.md": figures_block}


def write_figures() -> None:
    for name, block in PAGES.items():
        page = (ROOT / name).read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        (ROOT / name).write_text(f"{before}{BEGIN}\n{block()}\n{END}{after}", encoding="utf-8")
    PICTURE.write_text(picture(reports_by_instructions(SHOWN)[0][1]), encoding="utf-8")


if __name__ == "__main__":
    write_figures()
