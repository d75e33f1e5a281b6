"""A report as CSV: one number a line, tidy, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

from trimaran.benchmarks.report.figures import percentiles, rows_per_second, speedups_of
from trimaran.benchmarks.report.limits import shares
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.scenarios.finals import figures_of

# A spreadsheet would run a cell that begins like this.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvFact(NamedTuple):
    """One line, behind the model, the candidate and its verdict."""

    kind: str
    where: object = ""
    name: str = ""
    value: object = ""
    low: object = ""
    high: object = ""
    unit: str = ""
    n: object = ""
    cut: str = ""


HEAD = ("model", "candidate", "verdict", *CsvFact._fields)


def render_csv(report: Report) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEAD)
    for row in report.rows:
        for fact in (
            CsvFact("verdict", name=row.reason),
            *_timed(report, row),
            *_judged(row),
            *_scenarios(report, row),
        ):
            writer.writerow([_cell(cell) for cell in (report.model, row.name, row.verdict, *fact)])
    return stream.getvalue()


def _timed(report: Report, row: CandidateRow) -> Iterator[CsvFact]:
    if row.name != report.reference.name:
        for shape, ratio in speedups_of(report, row.name).items():
            yield CsvFact("speed-up", shape, "over eager PyTorch", *ratio[:3], "times")
    for timed in report.measurements:
        if timed.candidate == row.name:
            n = len(timed.samples_ns)
            for share, value_ns in zip((50, 90, 99), percentiles(timed), strict=True):
                yield CsvFact("latency", timed.shape, f"p{share}", value_ns / 1e6, unit="ms", n=n)
            yield CsvFact("throughput", timed.shape, "rows", rows_per_second(timed), unit="rows/s", n=n)
    for reached in shares(report):
        if reached.candidate == row.name:
            name = f"share of the bare {reached.arithmetic} products"
            yield CsvFact("ceiling", reached.shape, name, reached.share)


def _judged(row: CandidateRow) -> Iterator[CsvFact]:
    if row.quality:
        for metric, value in row.quality.metrics.items():
            low, high = row.quality.intervals.get(metric, ("", ""))
            yield CsvFact("quality", row.quality.rows, metric, value, low, high, n=row.quality.n)
    for name, size_bytes in (("size on disk", row.size_bytes), ("peak memory", row.peak_memory_bytes)):
        if size_bytes:
            yield CsvFact("footprint", "", name, size_bytes, unit="bytes", n=1)


def _scenarios(report: Report, row: CandidateRow) -> Iterator[CsvFact]:
    for result in report.scenarios:
        if result.candidate == row.name:
            where, cut = " ".join(filter(None, (result.at, result.wire, result.target))), result.cut or ""
            for figure in figures_of(result):
                low, high = ("" if bound is None else bound for bound in (figure.low, figure.high))
                yield CsvFact(result.scenario, where, figure.name, figure.value, low, high, figure.unit, figure.n, cut)


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.9g}".replace("nan", "NaN").replace("inf", "Infinity")
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
