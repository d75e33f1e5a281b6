from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.benchmarks.scripts import scripts_in

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def readme() -> Iterator[ModuleType]:
    with scripts_in(ROOT / "benchmarks", ("experiment", "readme")) as scripts:
        yield scripts.readme


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_a_page_shows_the_figures_of_the_committed_report(readme: ModuleType, name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    shown = page.partition(readme.BEGIN)[2].partition(readme.END)[0].strip()
    assert shown == readme.PAGES[name](), "run `python benchmarks/readme.py`"


def test_the_picture_is_that_of_the_committed_report(readme: ModuleType) -> None:
    newest = readme.reports_by_instructions(readme.SHOWN)[0][1]
    assert readme.PICTURE.read_text(encoding="utf-8") == readme.picture(newest)


def test_figures_of_cpus_with_and_without_vnni_stand_under_their_names(readme: ModuleType) -> None:
    reports = readme.reports_by_instructions(readme.SHOWN)
    assert reports, "no report is committed"
    for instructions, report in reports:
        assert f"| {report.environment.cpu}, {instructions} |" in readme.short_block()
        assert f"## A CPU {instructions}" in readme.figures_block()


@pytest.mark.parametrize("level", ["strict", "balanced"])
def test_the_harness_of_a_committed_report_cost_little_and_saw_no_difference_in_none(
    readme: ModuleType, level: str
) -> None:
    from trimaran.benchmarks.measure.harness import warnings

    checks = [report.harness for _, report in readme.reports_by_instructions(f"minilm-{level}")]
    assert checks and not any(warnings(check) for check in checks if check)


def test_every_figure_of_the_readme_and_the_docs_is_held_by_a_committed_result(readme: ModuleType) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    held = readme.held_figures()
    for page in pages:
        # Pages made whole from results have a test of their own that they are current.
        shown = set() if page.name in readme.GENERATED else readme.figures_in(page.read_text(encoding="utf-8"))
        assert shown <= held, f"{page.name} shows figures that no committed result holds"


def test_a_figure_that_no_result_holds_is_noticed(readme: ModuleType) -> None:
    assert readme.figures_in("It is 7.13× as fast, 3.2 ms and 1,234 texts/s.") == {"7.13×", "3.2 ms", "1,234 texts/s"}
    assert not readme.figures_in("It is 7.13× as fast.") <= readme.held_figures()
    assert readme.figures_in("`--budget 50 ms` is a setting") == set(), "what is code is not a claim"


def test_scenarios_and_the_harness_are_shown_where_the_report_has_them(readme: ModuleType) -> None:
    from tests.benchmarks.fakes import usual_report
    from tests.benchmarks.scenario_worlds import cut_result, scenario_results
    from trimaran.benchmarks.measure.harness import HarnessCheck
    from trimaran.core.samples import Round

    turns = tuple(Round(samples_ns=(1_000_000 + number,)) for number in range(4))
    found = usual_report().model_copy(
        update={
            "scenarios": (*scenario_results("eager", speed=0.5), *scenario_results("quick"), cut_result()),
            "harness": HarnessCheck(null=turns, bare=turns, timed=turns),
        }
    )
    lines = readme.scenario_lines(found)
    assert any(line.startswith("| Single stream (served, grpc): p50 latency | ") for line in lines)
    assert sum("Closed loop" in line for line in lines) == 1
    assert "1.0000 times as long" in "".join(readme.harness_lines(found))
    assert readme.scenario_lines(usual_report()) == []


def test_every_command_of_the_readme_exists() -> None:
    import re

    from typer.main import get_command

    from trimaran.cli import command_line

    known = set(get_command(command_line()).commands)  # type: ignore[attr-defined]
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^trimaran ([a-z-]+)", page, flags=re.MULTILINE))
    assert named and named <= known
