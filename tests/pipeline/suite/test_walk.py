"""A whole suite over a tiny real model: every scenario, at every level, cut and taken up again."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.export.zoo import saved_model
from tests.homes import home_at
from tests.serving.worlds import processes_with
from tests.tiny import tiny_artifact
from trimaran.benchmarks.measure.harness import floor_ns, overhead
from trimaran.benchmarks.report import suite_board
from trimaran.benchmarks.report.comparability import require_alike
from trimaran.benchmarks.report.figures import shapes_of
from trimaran.benchmarks.report.limits import shares
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import read_report
from trimaran.benchmarks.scenarios import loadgen
from trimaran.benchmarks.scenarios.finals import READINGS, final
from trimaran.benchmarks.scenarios.settings import SuiteUnit
from trimaran.benchmarks.scenarios.suite import Suite, suite_from_data
from trimaran.benchmarks.scenarios.suite_state import FILE
from trimaran.benchmarks.scenarios.time_parts import time_splits
from trimaran.cli import main
from trimaran.core.config import deploy_config
from trimaran.core.corpus import shipped_texts
from trimaran.core.errors import ServerError, ToolError, UnavailableError, UsageError, ValidationError
from trimaran.core.progress import SilentProgress
from trimaran.core.store import Store
from trimaran.model_repository.layout import lay_out
from trimaran.pipeline.suite import walk as suite_walk
from trimaran.pipeline.suite.load_driver import ServedTarget
from trimaran.pipeline.suite.run import SuiteOptions, bench_suite
from trimaran.serving.triton import installation
from trimaran.serving.triton.server import launch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BRIEF = {"limit_s": 60.0}
EVERYTHING: dict[str, Any] = {
    "texts": 6,
    "harness": True,
    "ceiling": True,
    "baselines": ["eager-bf16"],
    "effort": {"rounds": 2, "minimum_rounds": 2, "minimum_time_s": 0.01, "warmup_time_s": 0.0},
    "scenarios": [
        {"scenario": "single-stream", "samples": 6, "time_s": 0.0, "rounds": 2, "warmup": 1, **BRIEF},
        {"scenario": "shape-grid", "batches": [1, 4], "sequences": [8, 16], "samples": 2, "time_s": 0.0, "rounds": 1},
        {"scenario": "mixed-lengths", "batch": 3, "rounds": 2, "candidates": ["eager", "baselines", "chosen"]},
        {"scenario": "offline", "at": ["pipeline", "served"], "rounds": 2},
        {"scenario": "closed-loop", "concurrency": [1, 2], "samples": 6, "time_s": 0.0},
        {"scenario": "open-loop", "budget_ms": 5000.0, "shares_of_one_caller": [0.2], "samples": 6, "time_s": 0.0},
        {"scenario": "cold-start", "at": ["pipeline", "served"], "starts": 1, "candidates": ["chosen"]},
        {"scenario": "memory", "candidates": ["chosen"]},
        {"scenario": "size"},
        {"scenario": "energy", "rounds": 1, "candidates": ["chosen"]},
    ],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with home_at(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_model(tmp_path_factory.mktemp("models") / "tiny-bert", "bert", "embedding")


def suite_of(*scenarios: dict[str, Any], **others: Any) -> Suite:
    data = {**EVERYTHING, "harness": False, "ceiling": False, "baselines": [], **others, "scenarios": list(scenarios)}
    return suite_from_data(data, name="mine", where="here")


def run(
    model: Path,
    suite: Suite,
    home: Path,
    report: Path,
    wanted: SuiteOptions = SuiteOptions(),  # noqa: B008  (frozen)
) -> Report:
    # Few, so that judging takes no time: what is judged is not what is tested here.
    judging = home / "judging.txt"
    judging.write_text("\n".join(shipped_texts("judging")[:20]))
    config = deploy_config(
        {
            "model": str(model),
            "name": "tiny",
            "threads": 1,
            "candidates": ("onnxruntime-fp32",),
            "sequence": (1, 16, 64),
            "report": str(report),
            "judging": str(judging),
        }
    )
    found, paths = bench_suite(
        config, suite, wanted, store=Store(home / "store"), progress=SilentProgress(), command=("trimaran", "bench")
    )
    assert read_report(paths["json"]) == found
    return found


@pytest.fixture(scope="module")
def whole(model: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    if reason := installation.why_not():
        pytest.skip(reason)
    pytest.importorskip("mlperf_loadgen", reason="trimaran[bench] is not installed")
    suite = suite_from_data(EVERYTHING, name="everything", where="here")
    with pytest.MonkeyPatch.context() as patch:
        # That twins are measured is claimed, not how well they are told apart.
        patch.setattr(suite_walk, "TWINS_EFFORT", suite.effort)
        return run(model, suite, home, tmp_path_factory.mktemp("whole"))


def test_every_scenario_ends_in_its_number(whole: Report) -> None:
    assert whole.suite is not None and whole.suite.cut is None
    assert {result.scenario for result in whole.scenarios} == set(READINGS)
    nothing = [result.scenario for result in whole.scenarios if final(result) is None]
    assert set(nothing) <= {"energy"}
    assert [result.cut for result in whole.scenarios] == [None] * len(whole.scenarios)
    assert whole.cores, "every contender was pinned to the same cores"
    assert require_alike([whole, whole]) == ()


def test_the_same_texts_are_asked_at_all_three_levels(whole: Report) -> None:
    streams = [result for result in whole.scenarios if result.scenario == "single-stream"]
    assert {result.at for result in streams} == {"engine", "pipeline", "served"}
    assert len({result.texts.digest for result in streams if result.texts}) == 1
    (split,) = [found for found in time_splits(whole.scenarios) if found.wire]
    assert {part.name for part in split.parts} == {"tokenise", "compute", "queue", "stage", "tensors", "wire"}


def test_baselines_and_the_attention_setting_are_stated(whole: Report) -> None:
    (baseline,) = whole.baselines
    assert baseline.verdict == "baseline" and "bf16" in baseline.runs_as
    assert baseline.quality is not None and baseline.quality.metrics["max_abs_difference"] > 0
    assert whole.reference.runs_as == "eager, fp32, attention sdpa"
    assert whole.row("eager-bf16") == baseline
    assert any(measured.candidate == "eager-bf16" for measured in whole.measurements)
    mixed = [result.candidate for result in whole.scenarios if result.scenario == "mixed-lengths"]
    assert mixed == ["eager", "eager-bf16", "onnxruntime-fp32"]


def test_the_ceiling_is_measured_at_every_shape_of_the_race(whole: Report) -> None:
    assert [ceiling.shape for ceiling in whole.ceilings] == list(shapes_of(whole.measurements))
    assert all(0 < one.share < 2 for one in shares(whole))


def test_the_harness_measured_itself(whole: Report) -> None:
    assert whole.harness is not None
    assert floor_ns(whole.harness) and overhead(whole.harness)
    assert whole.harness.twins is not None and whole.harness.twins.candidate == "onnxruntime-fp32"


@pytest.mark.usefixtures("workers_here")
def test_a_suite_that_was_interrupted_is_taken_up_where_it_was(
    model: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = {"candidates": ["chosen"]}
    suite = suite_of(
        {"scenario": "size", **only}, {"scenario": "offline", "rounds": 1, **only}, {"scenario": "memory", **only}
    )
    ran: list[str] = []
    in_process = suite_walk.run_in_process

    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(suite_walk, "run_in_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(model, suite, home, tmp_path)
    partial = read_report(tmp_path)
    assert partial.suite is not None and partial.suite.cut == "It ended during offline, pipeline: KeyboardInterrupt"
    assert {result.scenario for result in partial.scenarios} == {"size"}, "what was found is kept and marked"

    def noted(unit: SuiteUnit, *arguments: Any, **options: Any) -> Any:
        ran.append(unit.asked.scenario)
        return in_process(unit, *arguments, **options)

    def footprint(unit: SuiteUnit, *arguments: Any, **options: Any) -> Any:
        ran.append(unit.asked.scenario)
        return footprints(unit, *arguments, **options)

    footprints = suite_walk.run_footprint
    monkeypatch.setattr(suite_walk, "run_in_process", noted)
    monkeypatch.setattr(suite_walk, "run_footprint", footprint)
    taken_up = run(model, suite, home, tmp_path, SuiteOptions(resume=True))
    assert ran == ["offline", "memory"], "the size was found before"
    assert taken_up.suite is not None and (taken_up.suite.cut, taken_up.suite.resumed) == (None, 1)
    assert {result.scenario for result in taken_up.scenarios} == {"size", "offline", "memory"}
    assert not (tmp_path / FILE).exists()
    with pytest.raises(UsageError, match="nothing to take up"):
        run(model, suite, home, tmp_path, SuiteOptions(resume=True))


@pytest.mark.usefixtures("workers_here")
def test_a_scenario_that_never_reaches_its_samples_ends_with_an_error_and_keeps_the_rest(
    model: Path, home: Path, tmp_path: Path
) -> None:
    endless = {"scenario": "single-stream", "at": ["engine"], "samples": 10**9, "rounds": 1, "limit_s": 0.3}
    endless["candidates"] = ["chosen"]
    with pytest.raises(ToolError, match="never reached its samples") as ended:
        run(model, suite_of(endless, {"scenario": "size"}), home, tmp_path)
    assert ended.value.exit_code == 6
    assert "--resume" in str(ended.value)
    partial = read_report(tmp_path)
    assert partial.suite is not None and partial.suite.cut
    assert {result.scenario for result in partial.scenarios} == {"single-stream", "size"}
    assert (tmp_path / FILE).exists()


@pytest.mark.usefixtures("workers_here")
def test_a_server_that_dies_in_the_middle_ends_with_an_error_and_keeps_the_rest(
    model: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := installation.why_not():
        pytest.skip(reason)
    serve = suite_walk.run_served

    def killing(unit: SuiteUnit, *, target: Any, **options: Any) -> Any:
        if unit.asked.scenario == "closed-loop":
            for pid in processes_with(f"--http-port={target.urls['http'].rpartition(':')[2]}"):
                if Path(f"/proc/{pid}/comm").read_text().startswith("tritonserver"):
                    os.kill(pid, signal.SIGKILL)
        return serve(unit, target=target, **options)

    monkeypatch.setattr(suite_walk, "run_served", killing)
    suite = suite_of(
        {"scenario": "single-stream", "at": ["served"], "samples": 3, "time_s": 0.0, "rounds": 1},
        {"scenario": "closed-loop", "concurrency": [1], "samples": 6, "time_s": 0.0},
        {"scenario": "open-loop"},
    )
    with pytest.raises(ServerError, match="closed-loop") as ended:
        run(model, suite, home, tmp_path)
    assert ended.value.exit_code == 7
    partial = read_report(tmp_path)
    found = {result.scenario: result.cut_by for result in partial.scenarios}
    assert found == {"single-stream": None, "closed-loop": "server"}, "nothing is asked of a dead server"


@pytest.mark.usefixtures("workers_here")
def test_a_server_that_is_there_is_asked_when_it_serves_this_candidate(
    model: Path, home: Path, whole: Report, tmp_path: Path
) -> None:
    asked = {"scenario": "single-stream", "at": ["served"], "wires": ["grpc", "http"], "rounds": 1, "warmup": 1}
    suite = suite_of({**asked, "samples": 3, "time_s": 0.0, "candidates": ["chosen"]}, {"scenario": "size"})
    chosen = whole.row("onnxruntime-fp32").artifact
    lay_out(Store(home / "store").open(str(chosen)), repository=tmp_path / "r", name="tiny", rows="alone", threads=1)
    lay_out(tiny_artifact(tmp_path / "s"), repository=tmp_path / "other", name="tiny", rows="alone", threads=1)
    with launch(tmp_path / "r", drain=False) as server:
        target = ServedTarget(
            kind="triton", model="", task="", urls={"http": server.http_url}, statistics=server.http_url
        )
        found = run(model, suite, home, tmp_path / "report", SuiteOptions(target=target))
    served = [result for result in found.scenarios if result.at == "served"]
    assert [(result.wire, result.cut) for result in served] == [("http", None)], "no address was given for gRPC"
    with launch(tmp_path / "other", drain=False) as server:
        target = ServedTarget(kind="triton", model="", task="", urls={"grpc": server.grpc_url})
        with pytest.raises(ValidationError, match="does not serve onnxruntime-fp32"):
            run(model, suite, home, tmp_path / "again", SuiteOptions(target=target))
    partial = read_report(tmp_path / "again")
    assert {result.scenario for result in partial.scenarios} == {"size"}, "what was found is kept"


@pytest.mark.usefixtures("workers_here")
def test_texts_longer_than_the_profile_are_refused_unless_they_may_be_cut(
    model: Path, home: Path, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"{'word ' * 80}{number}" for number in range(16)))
    suite = suite_of({"scenario": "offline", "rounds": 1, "candidates": ["chosen"]})
    with pytest.raises(UsageError, match="16 of 16 texts are longer than the profile") as refused:
        run(model, suite, home, tmp_path / "report", SuiteOptions(texts=texts))
    assert refused.value.exit_code == 2
    found = run(model, suite, home, tmp_path / "report", SuiteOptions(texts=texts, truncate=True))
    (result,) = found.scenarios
    assert result.texts is not None and result.texts.truncated == 6


def test_labelled_data_with_the_wrong_columns_is_refused_before_any_work(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.tsv").write_text("alpha\tbeta\n" + "one\ttwo\n" * 40)
    asked = [
        "bench",
        "-m",
        str(model),
        "--suite",
        "quick",
        "--data",
        str(tmp_path / "data.tsv"),
        "--metric",
        "spearman",
    ]
    with pytest.raises(SystemExit) as ended:
        main([*asked, "--report", str(tmp_path / "report"), "--store", str(tmp_path / "store")])
    assert ended.value.code == 2
    assert "data.tsv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data.tsv"]


def test_a_candidate_that_no_one_knows_is_refused_before_any_work(model: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choosen"):
        run(model, suite_of({"scenario": "size", "candidates": ["choosen"]}), home, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_served_scenario_needs_is_asked_for_before_the_work(
    model: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loadgen, "version_of", lambda name: None)
    with pytest.raises(UnavailableError, match="LoadGen, which is not installed") as refused:
        run(model, suite_of({"scenario": "closed-loop"}), home, tmp_path)
    assert "trimaran[bench]" in str(refused.value) and refused.value.exit_code == 3
    assert not list(tmp_path.iterdir())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def results_of(report: Report, scenario: str) -> Sequence[Any]:
    return [result for result in report.scenarios if result.scenario == scenario]


def test_the_board_is_a_table_on_a_terminal_and_lines_in_a_log(whole: Report) -> None:
    suite = suite_of({"scenario": "size"}, {"scenario": "energy"}, {"scenario": "offline"})
    size, energy, offline = suite.units
    for stream in (Terminal(), io.StringIO()):
        board = suite_board.board_for(suite.units, stream)
        with board.shown():
            board.end(size, results_of(whole, "size"), kept=True)
            board.begin(energy)
            board.step(energy).advance(1, 2, "eager")
            board.end(energy, results_of(whole, "energy"))
        said = stream.getvalue()
        assert "size, engine" in said and "MB" in said
        assert ("offline, pipeline" in said) == stream.isatty(), "a table also shows what is still to come"
    assert offline.title == "offline, pipeline"
