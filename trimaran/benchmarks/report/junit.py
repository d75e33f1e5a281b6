"""Gates and verdicts as JUnit XML, the one format that every CI shows in its own view."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from trimaran.benchmarks.report.report import UNSERVED, Report
from trimaran.benchmarks.report.wording import broken_words, gate_words

if TYPE_CHECKING:
    from trimaran.benchmarks.report.gates import GateRow

# Characters that XML 1.0 cannot hold at all, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitCase(NamedTuple):
    """One line of the CI's view: passed unless `failure` or `skipped` says why not."""

    group: str
    name: str
    failure: str = ""
    skipped: str = ""
    output: str = ""


def junit_of_gates(report: Report, rows: Sequence[GateRow]) -> str:
    cases = [
        JUnitCase(
            group=row.candidate,
            name=f"{row.gate} {row.limit}",
            failure="" if row.holds else f"{row.gate} is {row.observed}, wanted {row.limit}",
            output=f"observed {row.observed}",
        )
        for row in rows
    ]
    return _suite(f"trimaran gate: {report.model}", report.created, cases)


def render_junit(report: Report) -> str:
    """The report itself: what was chosen must keep each gate; a candidate that is not served is skipped, with why."""
    cases: list[JUnitCase] = []
    if report.verdict.chosen is None:
        cases.append(JUnitCase("verdict", "something to deploy", failure=str(report.verdict)))
    for row in report.candidates:
        if row.verdict in UNSERVED:
            cases.append(JUnitCase(row.name, "served", skipped=f"{row.verdict}: {row.reason}"))
            continue
        checks = row.quality.checks if row.quality else ()
        cases += [
            JUnitCase(row.name, gate_words(check), failure="" if check.holds else broken_words(check))
            for check in checks
        ]
        cases.append(JUnitCase(row.name, row.verdict, output=row.reason))
    return _suite(f"trimaran: {report.model}", report.created, cases)


def _suite(name: str, created: str, cases: Sequence[JUnitCase]) -> str:
    failures = sum(bool(case.failure) for case in cases)
    skipped = sum(bool(case.skipped) for case in cases)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    body = "\n".join(_case(case) for case in cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites {counts}>\n<testsuite name={_attribute(name)} timestamp={_attribute(created)} {counts}>\n"
        f"{body}\n</testsuite>\n</testsuites>\n"
    )


def _case(case: JUnitCase) -> str:
    inside = "".join(
        (
            f"<failure message={_attribute(case.failure)}>{_text(case.failure)}</failure>" if case.failure else "",
            f"<skipped message={_attribute(case.skipped)}/>" if case.skipped else "",
            f"<system-out>{_text(case.output)}</system-out>" if case.output else "",
        )
    )
    names = f"classname={_attribute(f'trimaran.{case.group}')} name={_attribute(case.name)}"
    return f'<testcase {names} time="0">{inside}</testcase>'


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split())))


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
