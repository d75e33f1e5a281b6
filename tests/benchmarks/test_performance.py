"""The scripts under benchmarks/ that make committed results, and the page that is made from those."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from tests.benchmarks.fakes import measurement, usual_report
from tests.benchmarks.report_worlds import ceiling_at, whole_report
from tests.benchmarks.scripts import scripts_in
from trimaran.benchmarks.report.figures import shapes_of
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.benchmarks.scenarios.suite_state import FILE
from trimaran.core.environment import capture
from trimaran.core.samples import Shape

FOLDER = Path(__file__).parents[2] / "benchmarks"
MODULES = (
    "experiment",
    "faults",
    "readme",
    "levers",
    "former_speed",
    "int8_search",
    "growth_results",
    "performance",
    "run",
    "sized_models",
    "growth",
    "base_size",
    "long_texts",
    "without_vnni",
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[SimpleNamespace]:
    with scripts_in(FOLDER, MODULES) as found:
        yield found


@pytest.fixture
def growth(scripts: SimpleNamespace) -> object:
    """Eager takes a millisecond a token, the engine half of it; operations grow as the tokens do."""
    found = scripts.growth_results
    points = tuple(
        found.Point(
            x=tokens,
            operations=1000 * tokens,
            measurements=(
                measurement("eager", Shape(batch=1, sequence=tokens), 1.0 * tokens),
                measurement("engine", Shape(batch=1, sequence=tokens), 0.5 * tokens),
            ),
        )
        for tokens in (16, 64)
    )
    served = tuple(
        found.ServedModels(models=count, started_ns=10**9, memory_bytes=count * 10**8, latencies_ns=(2_000_000,))
        for count in (1, 2)
    )
    return found.Growth(
        created="2026-11-20T12:00:00+00:00",
        environment=capture(),
        threads=2,
        engine="engine",
        curves=(found.Curve(name="length", unit="tokens", points=points),),
        served=served,
    )


def test_the_page_shows_the_committed_results(scripts: SimpleNamespace) -> None:
    page = scripts.performance.PAGE.read_text(encoding="utf-8")
    assert page == scripts.performance.rendered(page), "run `python benchmarks/performance.py`"


def test_the_pictures_are_those_of_the_committed_results(scripts: SimpleNamespace) -> None:
    for name, drawing in scripts.performance.drawings().items():
        assert (scripts.readme.RESULTS / name).read_text(encoding="utf-8") == drawing


def test_every_block_of_the_page_is_one_that_is_made(scripts: SimpleNamespace) -> None:
    page = scripts.performance.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- begin ") == page.count("<!-- end -->") == len(scripts.performance.BLOCKS)
    assert "×" not in scripts.experiment.by_hand(page), "what is written by hand claims no speed-up"


def test_requests_without_an_answer_and_the_longest_of_them_are_told(scripts: SimpleNamespace) -> None:
    one, both, *_ = scripts.faults.FAULTS
    result = {
        "faults": [{"fault": one, "statuses": {"200": 90, "503": 2}}, {"fault": both, "statuses": {"503": 7}}],
        "longest_s": {one: 0.61, both: 3.0},
        "median_back_s": {one: 0.1, both: 1.5},
    }
    told = [(found, wanted) for _, found, wanted in scripts.performance._recovery(result)]
    assert told == [("2", "0"), ("0.61 s", "≤ 1 s"), ("1.50 s", "≤ 2 s")]


def test_growth_is_told_with_the_expected_order_beside_it(
    scripts: SimpleNamespace, growth: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tmp_path / "growth.json"
    result.write_text(growth.to_json(), encoding="utf-8")  # type: ignore[attr-defined]
    assert scripts.growth_results.read_growth(result) == growth
    monkeypatch.setattr(scripts.performance, "GROWTH", result)
    monkeypatch.setattr(scripts.performance, "read_growth", lambda: growth)
    page = scripts.performance.growth_block()
    assert "| 64 | 4 times |" in page and "200 MB" in page
    for name, drawing in scripts.performance.drawings().items():
        ElementTree.fromstring(drawing)
        assert "expected order" in drawing, name


def test_a_result_that_is_not_there_is_said_to_be_missing(
    scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.performance, "GROWTH", tmp_path / "none.json")
    assert "Not measured yet" in scripts.performance.growth_block()
    assert scripts.performance.drawings() == {}


def test_a_lever_is_told_with_what_it_does_to_the_answers(
    scripts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts.performance, "RESULTS", tmp_path)
    assert "Not measured yet" in scripts.performance.levers_block()
    ratio = {"lever": "bf16", "shape": "1x128", "ratio": 1.3, "low": 1.25, "high": 1.35, "is": "faster"}
    result = {
        "candidate": "mixed",
        "threads": 2,
        "ratios": [ratio],
        "answers": {"bf16": {"mean_cosine_distance": 1.5e-5}},
        "time_by_kind_of_node": {"1x128": {"FullyConnected": 0.8, "Softmax": 0.195, "Reorder": 0.005}},
        "environment": {"cpu": "A CPU"},
    }
    (tmp_path / "levers-mixed.json").write_text(json.dumps(result))
    told = scripts.performance.levers_block()
    assert "| bf16 | 1.30 (1.25–1.35), faster | 1.5e-5 |" in told
    assert told.endswith("- at 1x128: FullyConnected 80.0%, Softmax 19.5%"), "what takes no time is left out"


def test_an_engine_stands_beside_what_is_wanted_and_the_ceiling(scripts: SimpleNamespace) -> None:
    report = usual_report()
    report = report.model_copy(update={"ceilings": tuple(ceiling_at(s) for s in shapes_of(report.measurements))})
    lines = scripts.performance._engines(report, "A model", ("4.7", "3.2", "3")).splitlines()
    assert "wanted at `balanced`" in lines[2] and "≥ 55 %" in lines[2]
    chosen = next(line for line in lines if line.startswith("| **quick** (chosen)"))
    assert "3.0" in chosen and chosen.rstrip(" |").endswith("%")


def test_only_a_suite_that_is_through_is_kept(scripts: SimpleNamespace, tmp_path: Path) -> None:
    work, results = tmp_path / "work", tmp_path / "results"
    assert not scripts.run.is_whole(work)
    write_reports(usual_report(), work)
    (work / FILE).write_text("{}")
    assert not scripts.run.is_whole(work), "its state is still there: it was cut"
    (work / FILE).unlink()
    assert scripts.run.is_whole(work)
    scripts.run.keep(work, results)
    assert {path.name for path in results.iterdir()} == {"report.json", "report.md"}


def test_mixed_lengths_stand_beside_eager(scripts: SimpleNamespace) -> None:
    shown = scripts.performance._mixed_lengths(whole_report())
    assert "| eager PyTorch | " in shown
    assert shown.splitlines()[-1].endswith("× |")
    assert "not measured" in scripts.performance._mixed_lengths(whole_report().model_copy(update={"scenarios": ()}))


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("run", ["--candidates", "openvino-fp32"]),
        ("growth", ["--quick"]),
        ("growth", ["--sizes", "6x384"]),
        ("base_size", ["--size", "6x384"]),
        ("long_texts", ["--candidates", "openvino-fp32"]),
        ("without_vnni", ["--candidates", "openvino-fp32"]),
    ],
)
def test_a_trial_never_replaces_a_committed_result(
    scripts: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    arguments: list[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        getattr(scripts, script).main()
    assert ended.value.code == 2 and "no committed result" in capsys.readouterr().err
