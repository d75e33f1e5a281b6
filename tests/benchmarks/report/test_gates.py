from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks.fakes import report, row, usual_report
from tests.benchmarks.scenario_worlds import cut_result, scenario_results
from tests.commands import trimaran_here
from trimaran.benchmarks.report.gates import GateRow, hold, read_gates
from trimaran.benchmarks.report.junit import junit_of_gates, render_junit
from trimaran.benchmarks.report.render_gates import gates_markdown
from trimaran.benchmarks.report.report import Report
from trimaran.core.errors import UsageError


def held(tmp_path: Path, toml: str, found: Report | Sequence[Report] | None = None) -> dict[str, GateRow]:
    path = tmp_path / "gates.toml"
    path.write_text(toml)
    rows = hold(found or usual_report(), read_gates(path), folder=tmp_path)
    return {f"{one.candidate}: {one.gate}": one for one in rows}


def test_a_speed_up_must_hold_at_the_lower_end_of_its_interval(tmp_path: Path) -> None:
    kept = held(tmp_path, '[speedup]\n"1x8" = 2.9\n"4x8" = 3.5\n')
    assert kept["quick: speed-up at 1x8"].holds
    assert not kept["quick: speed-up at 4x8"].holds
    median = next(iter(held(tmp_path, '[speedup]\n"1x8" = 2.9\n').values())).observed.split("median ")[1].rstrip(")")
    edge = f'[speedup]\n"1x8" = {float(median) - 0.005}\n'
    assert not held(tmp_path, edge)["quick: speed-up at 1x8"].holds
    assert held(tmp_path, f'judge_by = "median"\n{edge}')["quick: speed-up at 1x8"].holds


def test_quality_is_judged_by_its_bound_unless_the_middle_is_asked_for(tmp_path: Path) -> None:
    found = row("quick")
    assert found.quality is not None
    bounded = found.quality.model_copy(
        update={"bounds": {"mean_cosine_distance": 2e-3}, "intervals": {"neighbour_overlap": (0.96, 1.0)}}
    )
    quick = report([found.model_copy(update={"quality": bounded})], {"quick": 3.0})
    toml = "[quality]\nmean_cosine_distance = 1e-3\nneighbour_overlap = 0.97\nrank_correlation = 0.99\n"
    by_bound, by_value = held(tmp_path, toml, quick), held(tmp_path, f'judge_by = "median"\n{toml}', quick)
    assert [gate.holds for gate in by_bound.values()] == [False, False, True]
    assert [gate.holds for gate in by_value.values()] == [True, True, True]
    assert "(up to 0.002)" in by_bound["quick: mean 1−cos"].observed


def test_latency_quality_memory_and_size_have_limits(tmp_path: Path) -> None:
    toml = """
    memory_mb = 50
    size_mb = 25
    [latency_ms]
    "1x8 p50" = 4
    "1x8 p99" = 3.3
    [quality]
    neighbour_overlap = 0.99
    batch_change = 1e-20
    """
    kept = {name.split(": ")[1]: one.holds for name, one in held(tmp_path, toml).items()}
    assert kept == {
        "latency at 1x8 p50": True,
        "latency at 1x8 p99": False,
        "top-10 overlap": True,
        "batch change": False,
        "peak memory": False,
        "size on disk": True,
    }


def test_a_percentile_gate_wants_enough_samples_to_prove_it(tmp_path: Path) -> None:
    kept = held(tmp_path, '[latency_ms]\n"1x8 p99" = 900\n"1x8 p90" = 900\n')
    assert "not proven: p99 needs 299 samples, has 60" in kept["quick: latency at 1x8 p99"].observed
    assert [one.holds for one in kept.values()] == [False, True]
    assert held(tmp_path, 'judge_by = "median"\n[latency_ms]\n"1x8 p99" = 900\n')["quick: latency at 1x8 p99"].holds
    scenario = usual_report().model_copy(update={"scenarios": scenario_results("quick")})
    gate = '[[scenario]]\nscenario = "single-stream"\nfigure = "p99 latency"\nwire = "http"\nlimit = 900\n'
    (row,) = held(tmp_path, gate, scenario).values()
    assert not row.holds and "not proven: p99 needs 299 samples, has 120" in row.observed


def test_a_metric_of_labelled_data_is_a_floor(tmp_path: Path) -> None:
    judged = row("quick", data_accuracy=0.91, data_accuracy_change_points=-0.3)
    found = report([judged], {"quick": 3.0})
    kept = held(tmp_path, "[quality]\ndata_accuracy = 0.9\ndata_accuracy_change_points = -0.1\n", found)
    assert {name: one.holds for name, one in kept.items()} == {
        "quick: accuracy on labelled data": True,
        "quick: accuracy change in points on labelled data": False,
    }


def test_what_was_not_measured_keeps_to_no_limit(tmp_path: Path) -> None:
    toml = '[speedup]\n"7x7" = 0.1\n[latency_ms]\n"7x7 p50" = 9e9\n[quality]\nlabel_agreement = 0.1\n'
    rows = held(tmp_path, toml).values()
    assert [(one.holds, one.observed) for one in rows] == [(False, "not measured")] * 3
    accepted = held(tmp_path, f'unmeasured = "accepted"\n{toml}')
    assert [(one.holds, one.observed) for one in accepted.values()] == [(True, "not measured, accepted")] * 3
    assert not held(tmp_path, 'unmeasured = "accepted"\n[speedup]\n"1x8" = 99\n')["quick: speed-up at 1x8"].holds


def test_every_servable_candidate_can_be_gated_at_once(tmp_path: Path) -> None:
    kept = held(tmp_path, 'candidate = "servable"\n[speedup]\n"1x8" = 2.0\n')
    assert {name: one.holds for name, one in kept.items()} == {
        "quick: speed-up at 1x8": True,
        "slow: speed-up at 1x8": False,
    }


def test_a_report_with_nothing_chosen_passes_no_gate(tmp_path: Path) -> None:
    nothing = report([row("wrong", neighbour_overlap=0.1)], {"wrong": 9.0})
    rows = held(tmp_path, '[speedup]\n"1x8" = 0.1\n', nothing).values()
    assert [one.holds for one in rows] == [False]


def test_scenario_figures_are_floors_or_ceilings_by_their_nature(tmp_path: Path) -> None:
    toml = """
    [[scenario]]
    scenario = "single-stream"
    figure = "p99 latency"
    at = "served"
    wire = "grpc"
    limit = 9
    [[scenario]]
    scenario = "offline"
    figure = "throughput"
    limit = 9000
    """
    found = usual_report().model_copy(update={"scenarios": scenario_results("quick")})
    kept = held(tmp_path, toml, found)
    assert kept["quick: single-stream, served over grpc: p99 latency"].holds
    assert not kept["quick: offline, text in: throughput"].holds
    cut = usual_report().model_copy(update={"scenarios": (cut_result(),)})
    gate = '[[scenario]]\nscenario = "closed-loop"\nfigure = "best throughput"\nlimit = 1\n'
    rows = list(held(tmp_path, gate, cut).values())
    assert not rows[0].holds and "stopped answering" in rows[0].observed


def test_a_regression_against_the_baseline_fails_and_none_passes(tmp_path: Path) -> None:
    (tmp_path / "base.json").write_text(usual_report().to_json())
    gate = '[regression]\nbaseline = "base.json"\nruns = 1\n'
    assert all(one.holds for one in held(tmp_path, gate).values())
    slower = report([row("quick"), row("slow")], {"quick": 2.0, "slow": 1.5})
    failed = [one for one in held(tmp_path, gate, slower).values() if not one.holds]
    assert {one.candidate for one in failed} == {"quick"} and "slower" in failed[0].observed
    assert all(one.holds for one in held(tmp_path, f"{gate}tolerance = 2.0\n", slower).values())
    assert all(one.holds for one in held(tmp_path, f'{gate}kinds = ["size"]\n', slower).values())
    elsewhere = usual_report().model_copy(update={"threads": 9})
    with pytest.raises(UsageError, match="threads: 2 and 9"):
        held(tmp_path, gate, elsewhere)


def test_a_regression_gate_wants_its_runs_on_either_side_and_says_what_they_would_have_shown(tmp_path: Path) -> None:
    runs = [
        report([row("quick"), row("slow")], {"quick": speed, "slow": 1.5}).model_copy(
            update={"created": f"2026-01-0{day}"}
        )
        for day, speed in enumerate((3.0, 3.06, 2.96), start=1)
    ]
    for run in runs:
        (tmp_path / "base" / run.created).mkdir(parents=True)
        (tmp_path / "base" / run.created / "report.json").write_text(run.to_json())
    gate = '[regression]\nbaseline = "base"\n'
    one = held(tmp_path, gate, runs[0])
    assert one["quick: regression: runs"].observed == "needs 3 runs a side, has 3 and 1"
    assert not one["quick: regression: runs"].holds
    untimed = held(tmp_path, f'{gate}kinds = ["quality"]\n', runs[0])
    assert "quick: regression: runs" not in untimed, "answers do not differ from run to run"
    three = held(tmp_path, gate, runs)["quick: regression"]
    assert three.holds and re.search(r"3 and 3 runs.* A change of \d+% or more of any speed would", three.observed)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("", "no gate"),
        ("surprise = 1", "surprise"),
        ("[speedup", "not TOML"),
        ('[speedup]\n"large" = 2', "does not know 'large'"),
        ('[latency_ms]\n"1x8" = 2', "does not know '1x8'"),
        ("[quality]\nbeauty = 2", "does not know 'beauty'"),
        ('[[scenario]]\nscenario = "nap"\nfigure = "x"\nlimit = 1', "does not know 'nap'"),
        ('candidate = "nobody"\n[speedup]\n"1x8" = 2', "no candidate 'nobody'"),
        ('[regression]\nbaseline = "nowhere"', "no report at"),
    ],
)
def test_a_gates_file_that_cannot_be_meant_is_a_sentence(tmp_path: Path, toml: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        held(tmp_path, toml)


def test_junit_counts_what_failed_and_survives_odd_names(tmp_path: Path) -> None:
    rows = tuple(held(tmp_path, '[speedup]\n"1x8" = 2.0\n"4x8" = 9.0\n').values())
    odd = rows[0]._replace(candidate='a "quoted" <tag> & \x01')
    suite = ElementTree.fromstring(junit_of_gates(usual_report(), (*rows, odd)))
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert len(suite.findall(".//failure")) == 1
    assert '"quoted" <tag> &' in str(suite.findall(".//testcase")[2].get("classname"))


def test_the_junit_of_a_report_skips_what_is_not_served_and_fails_when_nothing_is() -> None:
    suite = ElementTree.fromstring(render_junit(usual_report()))
    assert suite.get("failures") == "0"
    assert len(suite.findall(".//skipped")) == 2
    nothing = ElementTree.fromstring(render_junit(report([row("wrong", neighbour_overlap=0.1)], {"wrong": 9.0})))
    assert nothing.get("failures") == "1"


def test_the_summary_puts_failures_first(tmp_path: Path) -> None:
    rows = tuple(held(tmp_path, '[speedup]\n"1x8" = 2.0\n"4x8" = 9.0\n').values())
    text = gates_markdown(usual_report(), rows)
    assert "1 of 2 gates failed" in text
    assert text.index("✕") < text.index("✓")


def test_the_command_ends_with_4_and_the_failing_rows(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(usual_report().to_json())
    (tmp_path / "good.toml").write_text('[speedup]\n"1x8" = 2.0\n')
    (tmp_path / "bad.toml").write_text('[speedup]\n"1x8" = 2.0\n"4x8" = 9.0\n')
    home = tmp_path / "home"
    assert trimaran_here("report", "gate", ".", "good.toml", home=home, cwd=tmp_path).returncode == 0
    bad = trimaran_here("report", "gate", ".", "bad.toml", "--junit", "out.xml", "--json", home=home, cwd=tmp_path)
    assert bad.returncode == 4
    told = json.loads(bad.stdout)["error"]
    assert "speed-up at 4x8 of quick" in told["message"]
    assert [one["holds"] for one in told["facts"]["rows"]] == [True, False]
    assert 'failures="1"' in (tmp_path / "out.xml").read_text()
    (tmp_path / "report.json").write_text(usual_report().to_json().replace('"schema": 2', '"schema": 99'))
    newer = trimaran_here("report", "gate", ".", "good.toml", home=home, cwd=tmp_path)
    assert newer.returncode == 5 and "schema 99" in newer.stderr
