from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.fakes import FAILED, measurement, report, row, usual_report
from tests.benchmarks.scenario_worlds import cut_result, scenario_results
from tests.commands import trimaran_here
from trimaran.benchmarks.report.compare import ReportComparison, compare, divided
from trimaran.benchmarks.report.render_compare import comparison_json, comparison_markdown, comparison_sentence, remarks
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_runs
from trimaran.core.errors import UsageError
from trimaran.judging.stats import Ratio


def measured_again(found: Report, times_ms: dict[str, float], *, seed: int) -> Report:
    """The same report from another run: new samples, with the named candidates at these milliseconds a call."""
    shapes = {one.shape for one in found.measurements}
    names = dict.fromkeys(one.candidate for one in found.measurements)
    usual = {"eager": 10.0, "quick": 10 / 3, "slow": 10 / 1.5, "wrong": 2.0}
    again = [measurement(name, shape, {**usual, **times_ms}[name], seed=seed) for name in names for shape in shapes]
    return found.model_copy(update={"measurements": tuple(again), "created": "2026-11-21T12:00:00+00:00"})


def outcomes(found: ReportComparison, kind: str) -> dict[tuple[str, str], str]:
    return {(change.candidate, change.where): change.outcome for change in found.changes if change.kind == kind}


def test_the_same_run_twice_shows_no_difference() -> None:
    old = measured_again(usual_report(), {}, seed=1)
    found = compare(old, measured_again(usual_report(), {}, seed=2))
    assert found.of("better") == found.of("worse") == ()
    assert comparison_sentence(found).startswith("Nothing changed; ")


def test_twice_as_slow_is_slower_and_nothing_else_moves() -> None:
    old = measured_again(usual_report(), {}, seed=1)
    found = compare(old, measured_again(usual_report(), {"quick": 2 * 10 / 3}, seed=2))
    assert {change.candidate for change in found.of("worse")} == {"quick"}
    assert found.of("better") == ()
    assert comparison_sentence(found).startswith("3 got slower")
    ratio = found.of("worse")[0].ratio
    assert ratio is not None and ratio.low < 0.5 < ratio.high


def test_a_machine_that_was_slower_that_day_is_no_regression() -> None:
    old = measured_again(usual_report(), {}, seed=1)
    slower = {"eager": 13.0, "quick": 13 / 3, "slow": 13 / 1.5, "wrong": 2.6}
    found = compare(old, measured_again(usual_report(), slower, seed=2))
    assert {change.candidate for change in found.of("worse")} == {"eager"}
    assert any("eager changed likewise" in remark for remark in remarks(found))


def runs(speed: float, *, seed: int, spread: float = 0.05) -> tuple[Report, ...]:
    """Four runs in each of which `quick` is faster or slower as a whole, as a process is by its place in memory."""
    luck = np.random.default_rng(seed).lognormal(0, spread, 4)
    return tuple(
        measured_again(usual_report(), {"quick": 10 / 3 / speed * factor}, seed=100 * seed + number)
        for number, factor in enumerate(luck)
    )


def test_runs_that_differ_from_one_another_are_no_change_where_single_runs_would_be_one() -> None:
    told = [outcomes(compare(runs(1.0, seed=seed), runs(1.0, seed=seed + 50)), "speed") for seed in range(10)]
    changed = [key for found in told for key, outcome in found.items() if key[0] == "quick" and outcome != "same"]
    assert len(changed) <= 3, "of 30"
    single = [compare(runs(1.0, seed=seed)[0], runs(1.0, seed=seed + 50)[0]) for seed in range(10)]
    assert sum(len(found.of("worse")) + len(found.of("better")) for found in single) > 3, "one run a side is misled"


def test_several_runs_a_side_say_which_change_they_could_have_seen(tmp_path: Path) -> None:
    old, new = runs(1.0, seed=1, spread=0.01), runs(0.8, seed=2, spread=0.01)
    slower = compare(old, new)
    assert {change.candidate for change in slower.of("worse")} == {"quick"}
    same = remarks(compare(old, runs(1.0, seed=3, spread=0.01)))
    assert any(remark.startswith("quick at") and "or more would have been seen" in remark for remark in same)
    assert "4 and 4 runs: intervals include how much runs differ from one another." in same
    assert any(remark.startswith("One run a side: how much runs differ") for remark in remarks(compare(old[0], new[0])))
    for number, report_of_run in enumerate(old):
        (tmp_path / "old" / str(number)).mkdir(parents=True)
        (tmp_path / "old" / str(number) / "report.json").write_text(report_of_run.to_json())
    assert len(read_runs(tmp_path / "old")) == 4 and len(read_runs(tmp_path / "old" / "2")) == 1


def test_answers_that_got_worse_are_said_and_a_lost_verdict_too() -> None:
    old = report([row("quick"), row("slow")], {"quick": 3.0, "slow": 1.5})
    new = report([row("quick", neighbour_overlap=0.9), row("slow")], {"quick": 3.0, "slow": 1.5})
    found = compare(old, new)
    assert outcomes(found, "quality")["quick", "neighbour_overlap"] == "worse"
    assert outcomes(found, "quality")["slow", "neighbour_overlap"] == "same"
    assert outcomes(found, "verdict") == {("quick", "verdict"): "worse", ("slow", "verdict"): "same"}
    assert "The choice changed from quick to slow." in remarks(found)
    assert "below its limit 0.97" in comparison_markdown([found])


def test_digits_that_no_gate_would_notice_are_no_change() -> None:
    old = report([row("quick")], {"quick": 3.0})
    new = report([row("quick", mean_cosine_distance=3e-9, neighbour_overlap=0.9995)], {"quick": 3.0})
    assert set(outcomes(compare(old, new), "quality").values()) == {"same"}


def test_scenarios_change_where_their_intervals_separate() -> None:
    old = usual_report().model_copy(update={"scenarios": scenario_results("quick")})
    new = usual_report().model_copy(update={"scenarios": scenario_results("quick", speed=0.5)})
    found = outcomes(compare(old, new), "scenario")
    worse = {where for (_, where), outcome in found.items() if outcome == "worse"}
    assert "single-stream, served over grpc: p50 latency" in worse
    assert "offline, text in: throughput" in worse
    assert found["quick", "size, tensors in: size on disk"] == "same"
    assert not any(where.endswith(": knee") for where in worse), "a number without an interval decides nothing"


def test_a_scenario_that_was_cut_is_not_compared() -> None:
    reports = [usual_report().model_copy(update={"scenarios": (cut_result(),)}) for _ in range(2)]
    assert outcomes(compare(*reports), "scenario") == {}


def test_candidates_in_one_report_alone_are_named() -> None:
    found = compare(report([row("quick")], {"quick": 3.0}), report([row("other"), FAILED], {"other": 3.0}))
    assert (found.gone, found.added) == (("quick",), ("other", "crashing"))


def test_unlike_machines_are_refused_unless_asked_for_and_then_named() -> None:
    old = usual_report()
    elsewhere = old.environment.model_copy(update={"cpu": "Another CPU", "libraries": {"openvino": "2027.1"}})
    new = old.model_copy(update={"environment": elsewhere, "threads": 4})
    with pytest.raises(UsageError, match="cpu: A <fast> CPU and Another CPU"):
        compare(old, new)
    found = compare(old, new, allow_unlike=True)
    assert {"cpu", "threads", "openvino"} <= {difference.field for difference in found.unlike}
    assert "Unlike: threads: 2 and 4" in comparison_markdown([found])


def test_the_quotient_of_two_ratios_carries_the_doubt_of_both() -> None:
    middle, low, high, _ = divided(Ratio(4, 3, 5), Ratio(2, 1.8, 2.2))
    assert middle == 2.0
    assert 3 / 2.2 < low < 3 / 2 and 5 / 2 < high < 5 / 1.8


def test_a_comparison_for_scripts_is_json() -> None:
    old = report([row("quick", mean_cosine_distance=float("nan"))], {"quick": 3.0})
    told = json.loads(json.dumps(comparison_json(compare(old, old))), parse_constant=pytest.fail)
    assert told["changes"] and told["unlike"] == []


def test_the_command_compares_several_and_refuses_unlike(tmp_path: Path) -> None:
    old = measured_again(usual_report(), {}, seed=1)
    slow = measured_again(usual_report(), {"quick": 7.0}, seed=2)
    files = {"old": old, "slow": slow, "unlike": old.model_copy(update={"threads": 7})}
    for name, found in files.items():
        (tmp_path / f"{name}.json").write_text(found.to_json())
    home = tmp_path / "home"
    done = trimaran_here("report", "compare", "old.json", "slow.json", "old.json", home=home, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 got slower" in done.stdout and "Nothing changed" in done.stdout
    refused = trimaran_here("report", "compare", "old.json", "unlike.json", home=home, cwd=tmp_path)
    assert refused.returncode == 2 and "threads: 2 and 7" in refused.stderr
    asked = trimaran_here("report", "compare", "old.json", "unlike.json", "--unlike", home=home, cwd=tmp_path)
    assert asked.returncode == 0 and "Unlike: threads: 2 and 7" in asked.stdout


def test_a_teacher_and_its_student_stand_side_by_side() -> None:
    teacher, student = (measured_again(usual_report(), {}, seed=seed) for seed in (1, 2))
    halved = {"eager": 5.0, "quick": 10 / 6, "slow": 10 / 3, "wrong": 1.0}
    student = measured_again(student, halved, seed=2).model_copy(update={"model": "student"})
    figures = {"teacher_mean_cosine_distance": 0.06, "data_spearman": 0.86, "data_spearman_eager": 0.861}
    rows = [
        one.model_copy(
            update={"quality": one.quality.model_copy(update={"metrics": {**one.quality.metrics, **figures}})}
        )
        if one.name == "quick" and one.quality
        else one
        for one in student.candidates
    ]
    before = [
        one.model_copy(
            update={
                "quality": one.quality.model_copy(update={"metrics": {**one.quality.metrics, "data_spearman": 0.9}})
            }
        )
        if one.name == "quick" and one.quality
        else one
        for one in teacher.candidates
    ]
    teacher = teacher.model_copy(update={"candidates": tuple(before)})
    student = student.model_copy(update={"candidates": tuple(rows)})
    with pytest.raises(UsageError, match="model"):
        compare(teacher, student)
    found = compare(teacher, student, two_models=True)
    assert set(outcomes(found, "speed").values()) == {"better"}, (
        "eager is another model, and says nothing of the machine"
    )
    assert outcomes(found, "quality")["quick", "data_spearman"] == "worse"
    shown = comparison_markdown([found])
    assert "teacher" in shown and "0.06" in shown
    assert any(remark.startswith("Two models: ") for remark in remarks(found))
    assert any(remark.startswith("Unlike: model: ") for remark in remarks(found))
