from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.benchmarks.fakes import usual_report
from tests.benchmarks.scenario_worlds import MILLISECOND, cut_result, samples, scenario_results
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.scenarios import results
from trimaran.benchmarks.scenarios.finals import (
    READINGS,
    figures_of,
    final,
    highest_rate,
    holds,
    knee,
    uneven,
)
from trimaran.judging.stats import estimate

SERVED = {"candidate": "a", "at": "served", "threads": 1}


def test_every_scenario_says_what_its_final_number_is() -> None:
    found = {result.scenario: final(result) for result in scenario_results()}
    assert set(found) == set(READINGS)
    assert all(reading.meaning for reading in READINGS.values())
    missing = [name for name, figure in found.items() if figure is None]
    assert missing == ["energy"], "where the machine tells no energy there is no number"


def test_results_survive_json() -> None:
    adapter = TypeAdapter(tuple[results.ScenarioResult, ...])
    assert adapter.validate_json(adapter.dump_json(scenario_results())) == scenario_results()


def test_twice_the_speed_is_twice_the_throughput_and_half_the_latency() -> None:
    slow, fast = ({result.scenario: final(result) for result in scenario_results(speed=speed)} for speed in (1.0, 2.0))
    for name in ("offline", "mixed-lengths", "shape-grid", "closed-loop"):
        assert fast[name].value == pytest.approx(2 * slow[name].value, rel=0.02)  # type: ignore[union-attr]
    assert fast["cold-start"].value == pytest.approx(slow["cold-start"].value / 2, rel=0.01)  # type: ignore[union-attr]


def test_an_interval_holds_its_value() -> None:
    for result in scenario_results():
        for figure in figures_of(result):
            if figure.low is not None and figure.high is not None:
                assert figure.low <= figure.value <= figure.high, figure


def test_the_knee_is_where_more_callers_stop_paying() -> None:
    points = tuple(
        results.ClosedPoint(concurrency=callers, elapsed_ns=10**9, latencies_ns=(1,) * answered)
        for callers, answered in ((1, 100), (2, 190), (4, 200), (8, 205))
    )
    point = knee(results.ClosedLoop(**SERVED, points=points))
    assert point is not None and point.concurrency == 2
    assert knee(results.ClosedLoop(**SERVED, points=())) is None


def test_the_highest_rate_is_below_the_first_that_breaks_the_budget() -> None:
    points = tuple(
        results.OpenPoint(rate_per_s=rate, elapsed_ns=10**9, latencies_ns=(ms * MILLISECOND,) * 100)
        for rate, ms in ((10, 5), (20, 9), (40, 30), (80, 8))
    )
    found = results.OpenLoop(**SERVED, budget_ms=10, points=points)
    point = highest_rate(found)
    assert point is not None and point.rate_per_s == 20
    assert final(found)[3:6] == ("higher", 20, 40)  # type: ignore[index]


def test_failed_requests_count_against_the_budget() -> None:
    point = results.OpenPoint(rate_per_s=10, elapsed_ns=10**9, latencies_ns=(1,) * 98, failures=2)
    assert not holds(point, results.OpenLoop(**SERVED, budget_ms=10, points=(point,)))


def test_a_start_with_a_wrong_answer_does_not_count() -> None:
    starts = (
        results.ProcessStart(elapsed_ns=MILLISECOND, correct=False, distance=0.4),
        results.ProcessStart(elapsed_ns=9 * MILLISECOND, correct=True, distance=0.0),
    )
    figure = final(results.ColdStart(**SERVED, starts=starts))
    assert figure is not None and (figure.value, figure.n) == (0.009, 1)


def test_a_result_that_was_cut_before_its_first_sample_has_no_number() -> None:
    for kind, field in ((results.SingleStream, "rounds"), (results.Offline, "passes"), (results.OpenLoop, "points")):
        extra = {"budget_ms": 5} if kind is results.OpenLoop else {}
        assert final(kind(**SERVED, cut="It died.", **{field: ()}, **extra)) is None  # type: ignore[arg-type]
    assert final(cut_result()) is not None, "what was found until then is kept"


def test_rounds_of_a_scenario_that_differ_are_named() -> None:
    assert uneven(scenario_results()) == ""
    passes = tuple(results.OfflinePass(elapsed_ns=ms * MILLISECOND, texts=8, tokens=90) for ms in (10, 10, 17))
    said = uneven([*scenario_results(), results.Offline(**SERVED, passes=passes)])
    assert "1 of " in said and "the worst 1.7 times (a, offline, served)" in said


def test_an_interval_of_a_percentile_is_wider_where_rounds_differ() -> None:
    alike = tuple(samples(10, seed=seed) for seed in range(4))
    apart = tuple(tuple(int(x * factor) for x in turn) for turn, factor in zip(alike, (1, 1.2, 0.8, 1.5), strict=True))
    narrow, wide = (high - low for low, high in (estimate(alike, 50), estimate(apart, 50)))
    assert wide > 3 * narrow


def test_a_report_of_the_first_schema_still_reads(tmp_path: Path) -> None:
    found = usual_report().model_dump(mode="json", by_alias=True)
    new = {"baselines", "scenarios", "harness", "suite", "cores"}
    old = {key: value for key, value in found.items() if key not in new} | {"schema": 1}
    path = tmp_path / "report.json"
    import json

    path.write_text(json.dumps(old))
    assert read_report(path) == usual_report()


def test_a_report_with_scenarios_reads_back(tmp_path: Path) -> None:
    whole = usual_report().model_copy(update={"scenarios": (*scenario_results(), cut_result())})
    (tmp_path / "report.json").write_text(whole.to_json())
    assert read_report(tmp_path) == Report.model_validate(whole.model_dump(by_alias=True))
