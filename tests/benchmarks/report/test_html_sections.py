from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.benchmarks.fakes import row, usual_report
from tests.benchmarks.report_worlds import SENSITIVITY, large_report, whole_report
from tests.benchmarks.scenario_worlds import scenario_results
from tests.tiny import tiny_artifact
from trimaran.benchmarks.report.choice import judged_row
from trimaran.benchmarks.report.pages import TEMPLATES, asset
from trimaran.benchmarks.report.plots import FidelityPoint, _front, series_class
from trimaran.benchmarks.report.plots_layers import layer_bars, search_steps
from trimaran.benchmarks.report.plots_scenarios import heat_map, load_curves, rate_curve, time_bars
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.scenarios.results import ClosedLoop, OpenLoop, ShapeGrid
from trimaran.benchmarks.scenarios.time_parts import time_splits
from trimaran.judging.sensitivity import KEY

RESULTS = scenario_results("quick")
EAGER = scenario_results("eager", speed=0.5)


def only(kind: type, results: tuple[object, ...] = RESULTS) -> object:
    return next(result for result in results if isinstance(result, kind))


def test_every_section_with_a_picture_has_its_numbers_in_a_table() -> None:
    sections = {part.partition("</h2>")[0]: part for part in render_html(whole_report()).split("<h2>")[1:]}
    drawn = [title for title, part in sections.items() if "<figure>" in part]
    assert drawn == [
        "How much faster",
        "Speed against fidelity",
        "Latency distributions",
        "Every shape",
        "Under load",
        "Where the time goes",
        "How near the limit",
        "Layer by layer",
    ]
    for title in drawn:
        assert "<table" in sections[title], title


def test_a_plain_report_has_no_empty_section() -> None:
    html = render_html(usual_report())
    for title in ("Every shape", "Under load", "Where the time goes", "Layer by layer", "Scenarios", "The harness"):
        assert f"<h2>{title}" not in html


def test_every_scenario_says_what_its_final_number_is_and_a_cut_one_why() -> None:
    html = render_html(whole_report())
    assert html.count("The final number is ") == len({type(result) for result in RESULTS})
    assert "stopped answering at 4 callers" in html
    assert "no RAPL counter" in html


def test_the_heat_map_shows_the_speed_up_where_eager_was_run_too() -> None:
    grid = only(ShapeGrid)
    assert isinstance(grid, ShapeGrid)
    beside = heat_map(grid, only(ShapeGrid, EAGER))  # type: ignore[arg-type]
    assert beside.count("2.00×") == 9 and beside.count('class="heat"') == 9
    strengths = re.findall(r'fill-opacity="([\d.]+)"', beside)
    assert len(set(strengths)) <= 2, "cells that differ by noise look alike"
    assert "2.00×" not in heat_map(grid, None)


def test_the_knee_and_the_highest_rate_are_marked() -> None:
    closed, opened = only(ClosedLoop), only(OpenLoop)
    assert isinstance(closed, ClosedLoop) and isinstance(opened, OpenLoop)
    assert "knee: 2 callers" in (load_curves(closed) or "")
    drawn = rate_curve(opened) or ""
    assert drawn.count('class="ring"') == 1 and drawn.count("dot broke") == 1
    assert load_curves(closed.model_copy(update={"points": closed.points[:1]})) is None
    assert rate_curve(opened.model_copy(update={"points": ()})) is None


def test_the_parts_of_a_bar_are_as_long_as_their_time() -> None:
    splits = time_splits(RESULTS)
    widths = {
        name: float(width)
        for width, name in re.findall(r'width="([\d.]+)" height="16" class="part part-(\w+)"', time_bars(splits[:1]))
    }
    parts = {part.name: part.mean_ns for part in splits[0].parts if part.mean_ns > 0}
    assert widths["compute"] / widths["tokenise"] == pytest.approx(parts["compute"] / parts["tokenise"], rel=0.02)


def test_layers_kept_in_float_stand_out_and_untried_ones_are_not_drawn() -> None:
    drawn = layer_bars(SENSITIVITY)
    assert drawn.count("bar chosen") == 1 and "kept in float" in drawn
    assert "pooler" not in drawn
    assert (search_steps(SENSITIVITY) or "").count("<circle") == 3
    assert search_steps(SENSITIVITY.model_copy(update={"steps": ()})) is None


def test_a_search_recorded_in_a_manifest_reaches_the_report(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path).model_copy(update={"details": {KEY: SENSITIVITY.model_dump(mode="json")}})
    assert judged_row("mixed", artifact, None).sensitivity == SENSITIVITY
    assert judged_row("plain", tiny_artifact(tmp_path), None).sensitivity is None


@pytest.mark.parametrize(("stopped", "hinted"), [("budget", True), ("trials", False), ("nothing left", False)])
def test_a_rejection_after_a_cut_search_hints_at_more_time(tmp_path: Path, stopped: str, hinted: bool) -> None:
    search = {**SENSITIVITY.model_dump(mode="json"), "stopped": stopped, "budget_s": 90.0}
    artifact = tiny_artifact(tmp_path).model_copy(update={"details": {KEY: search}})
    reason = judged_row("mixed", artifact, row("wrong", neighbour_overlap=0.1).quality).reason
    assert ("Its search was cut after 90 s; --budget gives it more time." in reason) is hinted


def test_nothing_on_the_front_is_beaten_in_both() -> None:
    pairs = [(1.0, 2.0), (0.9, 3.0), (0.95, 1.5), (1.0, 1.0)]
    points = [FidelityPoint(usual_report().reference, metric, speed) for metric, speed in pairs]
    assert _front(points, falling=False) == points[:2]
    assert _front(points, falling=True) == [points[1]]


def test_no_two_lines_of_a_plot_look_alike() -> None:
    found = large_report()
    named = [found.candidates[0].model_copy(update={"name": f"candidate-{index}"}) for index in range(40)]
    many = found.model_copy(update={"candidates": tuple(named)})
    styles = {series_class(many, row.name) for row in many.rows}
    assert len(styles) == 41
    sheet = asset("plots.css")
    classes = {part for style in styles for part in style.split()} - {"series"}
    assert all(f".{part} {{" in sheet or f".series.{part} {{" in sheet for part in classes)


def test_every_template_is_part_of_the_installed_package() -> None:
    root = Path(__file__).parents[3]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["trimaran"]
    packed = {path for pattern in patterns for path in (root / "trimaran").glob(pattern)}
    tuning = root / "trimaran" / "pipeline" / "tune" / "templates"
    assert {*TEMPLATES.iterdir(), *tuning.iterdir()} <= packed
