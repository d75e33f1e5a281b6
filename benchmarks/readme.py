"""The figures of the README, made from the committed reports and from nothing else."""

from __future__ import annotations

from pathlib import Path

from trimaran.benchmarks.figures import shapes_of, speedups
from trimaran.benchmarks.html_style import STYLE
from trimaran.benchmarks.plots import speedup_bars
from trimaran.benchmarks.report import Report
from trimaran.benchmarks.report_files import read_report
from trimaran.benchmarks.wording import interval, megabytes, metric_name, number, times
from trimaran.tasks import task

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures: made by `make bench` -->", "<!-- end of figures -->"
SHOWN = "minilm-strict"


def figures_block() -> str:
    """What stands between the README's markers: the verdict, the machine, one table."""
    report = read_report(RESULTS / SHOWN)
    shapes = shapes_of(report.measurements)
    headline = task(report.task).headline
    head = ["candidate", *(f"{shape}" for shape in shapes), metric_name(headline), "size", "verdict"]
    lines = [
        f"> {report.verdict}",
        "",
        f"Speed-up over eager PyTorch (95 % interval) on {report.environment.cpu}, {report.threads} threads, "
        f"all-MiniLM-L6-v2, level `{report.level}`, {report.created[:10]}:",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(_cells(report, row.name))} |" for row in report.candidates),
    ]
    return "\n".join(lines)


def picture(report: Report) -> str:
    """Speed-ups at the typical shape, as an image file."""
    drawn = speedup_bars(report, shapes_of(report.measurements)[1])
    style = f"<style>{STYLE}</style>"
    named = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" ', 1)
    return named.replace("<title>", f"{style}<title>", 1) + "\n"


def write_figures() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    (ROOT / "README.md").write_text(f"{before}{BEGIN}\n{figures_block()}\n{END}{after}", encoding="utf-8")
    (RESULTS / SHOWN / "speedup.svg").write_text(picture(read_report(RESULTS / SHOWN)), encoding="utf-8")


def _cells(report: Report, name: str) -> list[str]:
    row = report.row(name)
    ratios = speedups(report.measurements, name, reference=report.reference.name)
    metrics = row.quality.metrics if row.quality else {}
    speeds = [
        f"{times(ratio)} ({interval(ratio)})" if (ratio := ratios.get(shape)) else "–"
        for shape in shapes_of(report.measurements)
    ]
    return [
        f"`{name}`",
        *speeds,
        number(metrics.get(task(report.task).headline)),
        megabytes(row.size_bytes),
        f"**{row.verdict}**" if row.verdict == "chosen" else row.verdict,
    ]


if __name__ == "__main__":
    write_figures()
