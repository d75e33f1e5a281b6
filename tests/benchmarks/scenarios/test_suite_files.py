from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.finals import READINGS
from trimaran.benchmarks.scenarios.suite import load_suite, shipped_suites
from trimaran.benchmarks.scenarios.suite_state import FILE, SuiteState, begin, save
from trimaran.cli import main
from trimaran.core.errors import IntegrityError, UsageError

ROOT = Path(__file__).parents[3]


def test_the_shipped_suites_are_those_of_the_benchmarks_folder() -> None:
    assert set(shipped_suites()) == {"quick", "brief", "standard", "full"}
    assert {path.stem for path in (ROOT / "benchmarks" / "suites").glob("*.toml")} == set(shipped_suites())
    assert all(load_suite(name).describe for name in shipped_suites())


def test_the_standard_suite_asks_for_every_scenario_at_all_three_levels() -> None:
    suite = load_suite("standard")
    assert {asked.scenario for asked in suite.scenarios} == set(READINGS)
    assert {unit.at for unit in suite.units} == {"engine", "pipeline", "served"}
    assert {unit.wire for unit in suite.units} == {None, "grpc", "http"}
    assert len({unit.key for unit in suite.units}) == len(suite.units)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty: it asks for no scenario"),
        ("scenarios = []", "is empty: it asks for no scenario"),
        ("[[scenarios]]\nscenario = 'single-steam'", "scenarios.0"),
        ("[[scenarios]]\nscenario = 'offline'\nsamples = 3", "unknown key scenarios.0.offline.samples"),
        ("[[scenarios]]\nscenario = 'closed-loop'\nconcurrency = []", "at least 1 item"),
        ("[[scenarios]]\nscenario = 'closed-loop'\nat = ['engine']", "scenarios.0.closed-loop.at"),
        ("baselines = ['eager-bf61']\n[[scenarios]]\nscenario = 'size'", "Did you mean 'eager-bf16'"),
        ("[effort]\nrounds = 1\nminimum_rounds = 3\n[[scenarios]]\nscenario = 'size'", "minimum rounds"),
        ("scenarios = [", "is not TOML"),
        ("texts = 0\n[[scenarios]]\nscenario = 'size'", "texts"),
    ],
)
def test_a_suite_that_cannot_be_run_is_refused_with_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_suite(str(path))
    assert words in str(refused.value)


def test_an_unknown_suite_names_those_that_exist() -> None:
    with pytest.raises(UsageError, match="quick, standard") as refused:
        load_suite("standart")
    assert "There is no suite 'standart'" in str(refused.value)


CONDITIONS = {"suite": "a", "threads": "2"}


def test_there_must_be_something_to_take_up(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to take up"):
        begin(tmp_path, "mine", CONDITIONS, resume=True)
    assert begin(tmp_path, "mine", CONDITIONS, resume=False).found == ()


def test_a_run_begun_under_other_conditions_is_not_taken_up(tmp_path: Path) -> None:
    save(SuiteState(suite="mine", conditions=CONDITIONS), tmp_path)
    assert begin(tmp_path, "mine", CONDITIONS, resume=True).resumed == 1
    with pytest.raises(UsageError, match="threads: 2 and now 4"):
        begin(tmp_path, "mine", {**CONDITIONS, "threads": "4"}, resume=True)


@pytest.mark.parametrize("damage", ["{", "[1]", '{"schema": 1}'])
def test_a_damaged_state_is_named(tmp_path: Path, damage: str) -> None:
    (tmp_path / FILE).write_text(damage)
    with pytest.raises(IntegrityError, match="is not a readable state of a suite"):
        begin(tmp_path, "mine", CONDITIONS, resume=True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "either artifacts or a model"),
        (["-m", "nowhere", "--suite", "EMPTY"], 2, "asks for no scenario"),
        (["-m", "nowhere", "--suite", "none"], 2, "There is no suite"),
        (["some-artifact", "--suite", "quick"], 2, "--suite goes with a suite over a model"),
        (["-m", "nowhere", "--url", "127.0.0.1:8001"], 2, "grpc://host:port"),
        (["-m", "nowhere", "--url", "grpc://a:1", "--gateway", "http://b"], 2, "either --url or --gateway"),
        (["-m", "nowhere", "--suite", "quick"], 2, "nowhere"),
    ],
)
def test_a_request_that_cannot_be_met_ends_with_a_sentence_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    (tmp_path / "empty.toml").write_text("")
    given = [str(tmp_path / "empty.toml") if argument == "EMPTY" else argument for argument in arguments]
    with pytest.raises(SystemExit) as ended:
        main(["bench", *given, "--store", str(tmp_path / "store"), "--report", str(tmp_path / "report")])
    assert ended.value.code == code
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["empty.toml"], "nothing was begun"
