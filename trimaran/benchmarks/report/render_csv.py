"""A report as CSV: one number a line, tidy, for a spreadsheet or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from trimaran.benchmarks.report.figures import percentiles, rows_per_second, speedups
from trimaran.benchmarks.report.limits import shares
from trimaran.benchmarks.report.report import CandidateRow, Report
from trimaran.benchmarks.scenarios.finals import figures_of

HEAD = ("model", "candidate", "verdict", "kind", "where", "name", "value", "low", "high", "unit", "n", "cut")
Line = tuple[object, ...]
# A spreadsheet would run a cell that begins like this.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render_csv(report: Report) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEAD)
    for row in (report.reference, *report.baselines, *report.candidates):
        told = ("verdict", "", row.reason, "", "", "", "", "", "")
        for line in (
            told,
            *_measured(report, row),
            *_shares(report, row),
            *_judged(row),
            *_footprint(row),
            *_scenarios(report, row),
        ):
            writer.writerow([_cell(cell) for cell in (report.model, row.name, row.verdict, *line)])
    return stream.getvalue()


def _measured(report: Report, row: CandidateRow) -> Iterator[Line]:
    for shape, ratio in speedups(report.measurements, row.name, reference=report.reference.name).items():
        if row.name != report.reference.name:
            yield ("speed-up", shape, "over eager PyTorch", *ratio, "times", "", "")
    for found in report.measurements:
        if found.candidate != row.name:
            continue
        n = len(found.samples_ns)
        for share, value in zip((50, 90, 99), percentiles(found), strict=True):
            yield ("latency", found.shape, f"p{share}", value / 1e6, "", "", "ms", n, "")
        yield ("throughput", found.shape, "rows", rows_per_second(found), "", "", "rows/s", n, "")


def _shares(report: Report, row: CandidateRow) -> Iterator[Line]:
    for one in shares(report):
        if one.candidate == row.name:
            yield ("ceiling", one.shape, f"share of the bare {one.arithmetic} products", one.share, "", "", "", "", "")


def _judged(row: CandidateRow) -> Iterator[Line]:
    if row.quality:
        for name, value in row.quality.metrics.items():
            low, high = row.quality.intervals.get(name, ("", ""))
            yield ("quality", row.quality.rows, name, value, low, high, "", row.quality.n, "")


def _footprint(row: CandidateRow) -> Iterator[Line]:
    for name, value in (("size on disk", row.size_bytes), ("peak memory", row.peak_memory_bytes)):
        if value:
            yield ("footprint", "", name, value, "", "", "bytes", 1, "")


def _scenarios(report: Report, row: CandidateRow) -> Iterator[Line]:
    for result in report.scenarios:
        if result.candidate != row.name:
            continue
        where = " ".join(filter(None, (result.at, result.wire, result.target)))
        for found in figures_of(result):
            low, high = ("" if bound is None else bound for bound in (found.low, found.high))
            yield (
                result.scenario,
                where,
                found.name,
                found.value,
                low,
                high,
                found.unit,
                found.n,
                result.cut or "",
            )


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.9g}".replace("nan", "NaN").replace("inf", "Infinity")
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
