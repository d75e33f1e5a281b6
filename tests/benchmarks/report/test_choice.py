from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.fakes import EAGER, FAILED, FAITHFUL, measurement, report, row, usual_report
from tests.tiny import PROFILE, tiny_artifact
from trimaran.benchmarks.measure.quiet import busy_words
from trimaran.benchmarks.measure.runner import ContenderOutcome
from trimaran.benchmarks.report.choice import RaceChoice, choose, choose_unmeasured, failed_row, judged_row, stopped_row
from trimaran.benchmarks.report.figures import decisive, grid
from trimaran.benchmarks.report.junit import render_junit
from trimaran.benchmarks.report.render_csv import render_csv
from trimaran.benchmarks.report.render_html import render_html
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.summary import summary_reasons
from trimaran.benchmarks.report.wording import broken_words, gate_words
from trimaran.core.errors import ChildError, ToolError
from trimaran.core.spec import Range, ShapeProfile
from trimaran.core.tasks import Gate, gates_for
from trimaran.judging.gate_check import point_check


def verdicts(found: Report) -> dict[str, str]:
    return {candidate.name: candidate.verdict for candidate in found.candidates}


def test_the_fastest_that_keeps_its_gates_is_chosen_over_a_faster_wrong_one() -> None:
    found = usual_report()
    assert verdicts(found) == {"quick": "chosen", "slow": "passed", "wrong": "rejected", "crashing": "failed"}
    assert found.verdict.chosen == "quick"
    assert found.verdict.difference == "faster"
    assert "3.0" in found.verdict.speed
    assert "1 passed and slower, 1 rejected and 1 failed" in found.verdict.truth


def test_who_was_stopped_early_is_counted_and_its_reason_is_in_every_format() -> None:
    stopped = stopped_row("vain", "onnxruntime", "int8-static", "It was not searched: it could not have won")
    found = report([row("quick"), stopped], {"quick": 3.0})
    assert verdicts(found) == {"quick": "chosen", "vain": "stopped"}
    assert "of the others, 1 stopped early" in found.verdict.truth
    for render in (render_markdown, render_html, render_junit):
        assert "It was not searched: it could not have won." in render(found)
    assert any("vain stopped: It was not searched" in line for line in summary_reasons(found))


def test_the_slower_one_is_told_by_whom_it_was_beaten() -> None:
    assert "slower than quick" in usual_report().row("slow").reason


def test_two_that_time_cannot_tell_apart_are_told_so() -> None:
    found = report([row("one"), row("two")], {"one": 2.0, "two": 2.0})
    loser = next(candidate for candidate in found.candidates if candidate.verdict == "passed")
    assert "no clear difference" in loser.reason


def test_where_speed_is_not_resolved_the_truer_one_is_chosen_and_it_is_said() -> None:
    rows = [row("quick", mean_cosine_distance=1e-3), row("true")]
    found = report(rows, {"quick": 2.02, "true": 2.0})
    assert found.verdict.chosen == "true"
    assert "truer than quick, from which speed could not tell it apart" in found.row("true").reason
    assert "no clear difference in speed from true, which is truer" in found.row("quick").reason
    assert "1 passed and as fast, as far as could be told" in found.verdict.truth
    assert report(rows, {"quick": 2.4, "true": 2.0}).verdict.chosen == "quick", "a clear difference decides"


def test_the_sentence_about_speed_says_beside_what_it_was_measured() -> None:
    def waiting(share: float) -> str:
        rows = [
            base.model_copy(update={"rounds": tuple(r.model_copy(update={"delayed": share}) for r in base.rounds)})
            for name, median_ms in (("eager", 10.0), ("quick", 2.0))
            for shape in grid(PROFILE)
            for base in [measurement(name, shape, median_ms)]
        ]
        return choose(
            [row("quick")], rows, reference=EAGER, model="m", level="strict", objective="latency", profile=PROFILE
        ).verdict.speed  # fmt: skip

    assert waiting(0.12).endswith("on 2 threads, beside other work that delayed calls by 12%.")
    assert waiting(0.02).endswith("on 2 threads.")


def test_who_is_slower_than_eager_at_any_shape_is_not_chosen_while_another_is_not() -> None:
    last = grid(PROFILE)[-1]
    times_ms = {"eager": (10.0, 10.0), "uneven": (2.0, 15.0), "even": (5.0, 8.0)}
    measurements = [
        measurement(name, shape, large if shape == last else small)
        for name, (small, large) in times_ms.items()
        for shape in grid(PROFILE)
    ]

    def chosen(*names: str) -> RaceChoice:
        return choose(
            [row(name) for name in names],
            measurements,
            reference=EAGER,
            model="m",
            level="strict",
            objective="latency",
            profile=PROFILE,
        )

    found = chosen("uneven", "even")
    assert found.verdict.chosen == "even"
    assert f"slower than eager at {last} (0.67×), and even is not" in found.rows[0].reason
    assert chosen("uneven").verdict.chosen == "uneven", "it is still better than nothing"


def test_without_a_measurement_the_truest_is_chosen_and_no_speed_is_claimed() -> None:
    rows = [row("quick", mean_cosine_distance=1e-3), row("true"), row("wrong", neighbour_overlap=0.1)]
    found = choose_unmeasured(rows, level="strict", why=busy_words(0.63, 0.8))
    assert (found.verdict.chosen, found.verdict.difference) == ("true", None)
    assert found.verdict.speed.startswith(
        "Not measured: other work took 63% of the CPU, and calls waited for it for 80% of their time; run again"
    )
    assert "1 passed and not measured and 1 rejected" in found.verdict.truth
    written = usual_report().model_copy(update={"candidates": found.rows, "verdict": found.verdict, "measurements": ()})
    for render in (render_markdown, render_html, render_junit, render_csv):
        assert "×" not in render(written).replace("×10", "") and "Speed-up" not in render(written)
    assert choose_unmeasured(rows[2:], level="strict", why="").verdict.chosen is None


@pytest.mark.parametrize("level", ["exact", "strict", "balanced"])
def test_every_broken_gate_is_named_with_its_number_and_its_limit(level: str) -> None:
    for gate in gates_for("embedding", level, {}):
        bad = gate.limit * 1.7 if gate.comparison == "<=" else gate.limit * 0.5
        reason = row("bad", level, **{gate.metric: bad}).reason
        assert f"{bad:.3g}".replace("e-0", "e-") in reason
        assert "its limit" in reason


def test_a_number_that_rounds_to_its_limit_is_written_with_digits_that_tell_them_apart() -> None:
    assert "0.96996 is below its limit 0.97" in row("near", neighbour_overlap=0.96996).reason
    assert "0.0012003 is above its limit 0.0012" in row("near", mean_cosine_distance=0.0012003).reason


def test_a_value_that_keeps_its_limit_and_is_not_proven_is_never_written_as_beyond_it() -> None:
    gate = Gate("label_agreement", ">=", 0.99)
    check = point_check(gate, 0.995).model_copy(
        update={"verdict": "not proven", "bound": 0.985, "n": 400, "needs": 900}
    )
    assert gate_words(check) == "same label 0.995 ≥ 0.99"
    assert broken_words(check) == (
        "same label 0.995 keeps its limit 0.99, but is not proven (down to 0.985): needs 900 texts, has 400"
    )


def test_when_nothing_beats_eager_the_best_true_one_is_chosen_and_it_is_said() -> None:
    slower = report([row("best"), row("worst")], {"best": 0.8, "worst": 0.5}).verdict
    assert (slower.chosen, slower.difference) == ("best", "slower")
    assert "Nothing that keeps the strict gates beats eager" in slower.speed
    equal = report([row("equal")], {"equal": 1.0}).verdict
    assert (equal.chosen, equal.difference) == ("equal", "no difference")
    assert "measurably faster" in equal.speed


def test_when_nothing_passes_nothing_is_chosen_and_the_closest_is_named() -> None:
    rows = [row("near", neighbour_overlap=0.9), row("far", neighbour_overlap=0.5, mean_cosine_distance=0.2), FAILED]
    found = report(rows, {"near": 2.0, "far": 3.0}).verdict
    assert found.chosen is None
    assert "nothing to deploy" in found.speed
    assert "near came closest" in found.truth
    assert "0.9 is below its limit 0.97" in found.truth


def test_latency_and_throughput_can_choose_differently() -> None:
    last = grid(PROFILE)[-1]
    measurements = [measurement("eager", shape, 10.0) for shape in grid(PROFILE)]
    measurements += [measurement("sprinter", shape, 9.0 if shape == last else 2.0) for shape in grid(PROFILE)]
    measurements += [measurement("hauler", shape, 2.0 if shape == last else 9.0) for shape in grid(PROFILE)]
    rows = [row("sprinter"), row("hauler")]

    def winner(objective: str) -> str | None:
        return choose(
            rows,
            measurements,
            reference=EAGER,
            model="m",
            level="strict",
            objective=objective,
            profile=PROFILE,
        ).verdict.chosen

    assert (winner("latency"), winner("throughput")) == ("sprinter", "hauler")


def test_a_throughput_verdict_says_rows_per_second() -> None:
    assert "rows/s" in report([row("quick")], {"quick": 2.0}, objective="throughput").verdict.speed


def test_a_candidate_without_samples_at_the_decisive_shapes_is_not_chosen() -> None:
    found = report([row("quick"), row("unmeasured")], {"quick": 1.1})
    assert verdicts(found)["unmeasured"] == "failed"


def test_without_a_measured_reference_there_is_no_choice() -> None:
    measurements = [measurement("quick", shape, 1.0) for shape in grid(PROFILE)]
    with pytest.raises(ToolError, match="nothing to compare with"):
        choose(
            [row("quick")],
            measurements,
            reference=EAGER,
            model="m",
            level="strict",
            objective="latency",
            profile=PROFILE,
        )


def test_the_grid_is_short_typical_and_full() -> None:
    assert [str(shape) for shape in grid(ShapeProfile())] == ["1x16", "1x128", "32x128"]
    assert [str(shape) for shape in decisive(ShapeProfile(), "latency")] == ["1x128", "1x16"]
    assert [str(shape) for shape in decisive(ShapeProfile(), "throughput")] == ["32x128"]
    one = Range(minimum=1, typical=1, maximum=1)
    assert [str(shape) for shape in grid(ShapeProfile(batch=one, sequence=one))] == ["1x1"]


def test_a_failure_keeps_the_signals_name() -> None:
    failed = failed_row("x", "openvino", "bf16", ChildError("The child process died of SIGILL.", reason="SIGILL"))
    assert (failed.verdict, "SIGILL" in failed.reason) == ("failed", True)


def test_rows_are_made_from_artifacts_with_what_the_measuring_process_showed(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path)
    quality = row("any").quality
    well = ContenderOutcome(candidate="x", failure=None, peak_memory_bytes=5, load_s=0.25)
    assert judged_row("x", artifact, quality, outcome=well).peak_memory_bytes == 5
    dead = ContenderOutcome(candidate="x", failure="It died of SIGBUS", peak_memory_bytes=0, load_s=None)
    found = judged_row("x", artifact, quality, outcome=dead, environment={"A": "b"})
    assert (found.verdict, found.reason, found.execution_environment) == ("failed", "It died of SIGBUS.", {"A": "b"})
    assert judged_row("eager", artifact, None).verdict == "reference"
    broken = row("wrong", neighbour_overlap=0.1).quality
    assert judged_row("x", artifact, broken, outcome=dead).verdict == "rejected", "it was measured for the picture only"


def test_the_faithful_example_keeps_every_level() -> None:
    assert all(row("x", level).verdict == "passed" for level in ("exact", "strict", "balanced"))
    assert FAITHFUL["neighbour_overlap"] == 1.0
