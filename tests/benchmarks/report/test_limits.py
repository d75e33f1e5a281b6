from __future__ import annotations

import pytest

from tests.benchmarks.fakes import PROFILE, usual_report
from tests.benchmarks.report_worlds import ceiling_at
from trimaran.benchmarks.report.figures import grid
from trimaran.benchmarks.report.limits import above_words, peak, shares
from trimaran.benchmarks.report.render_csv import render_csv
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import report_from_data
from trimaran.core.samples import Round, Shape


@pytest.fixture
def report() -> Report:
    """Eager takes 10 ms and `quick` a third of it."""
    found = usual_report()
    rows = tuple(
        row.model_copy(update={"precision": "int8-static"}) if row.name == "quick" else row for row in found.candidates
    )
    ceilings = tuple(ceiling_at(shape) for shape in grid(PROFILE))
    return found.model_copy(update={"candidates": rows, "ceilings": ceilings})


def test_a_share_is_held_against_the_arithmetic_that_the_precision_allows(report: Report) -> None:
    largest = grid(PROFILE)[-1]
    found = {one.candidate: one for one in shares(report) if one.shape == largest}
    assert found["eager"].share == pytest.approx(0.4, rel=0.1) and found["eager"].arithmetic == "float32"
    assert found["quick"].share == pytest.approx(0.6, rel=0.1) and found["quick"].arithmetic == "int8"
    assert "crashing" not in found, "what was not timed has no share"


def test_the_peak_counts_the_products_of_its_arithmetic_only() -> None:
    ceiling = ceiling_at(Shape(batch=1, sequence=8))
    assert peak(ceiling, "int8") == pytest.approx(2 * 2 * 100**3 / 0.001)
    assert peak(ceiling, "float32") == pytest.approx((2 * 2 * 100**3 + 2 * 10 * 10**3) / 0.004)


def test_every_format_of_the_report_says_how_near_the_limit_the_candidates_are(report: Report) -> None:
    page = render_html(report)
    assert "How near the limit" in page and "Share of the measured ceiling at" in page
    assert "Share of the measured ceiling" in render_markdown(report)
    assert "share of the bare int8 products" in render_csv(report)
    assert report_from_data(report.model_dump(mode="json", by_alias=True)) == report


def test_a_report_without_a_ceiling_says_nothing_of_it() -> None:
    report = usual_report()
    assert shares(report) == ()
    assert "How near the limit" not in render_html(report) and "ceiling" not in render_markdown(report)


def test_a_share_above_the_ceiling_is_explained(report: Report) -> None:
    assert above_words(report.model_copy(update={"candidates": report.candidates[:1]})) == ""
    faster = tuple(
        one.model_copy(update={"rounds": tuple(Round(samples_ns=(10**6,)) for _ in one.rounds)})
        if one.candidate == "quick"
        else one
        for one in report.measurements
    )
    found = report.model_copy(update={"measurements": faster})
    assert above_words(found).startswith("Above 100 %: quick at ")
    for render in (render_html, render_markdown):
        assert "not the limit of the CPU" in render(found)
