"""What spreadsheets and CI pages get of a report."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.benchmarks.fakes import usual_report
from tests.benchmarks.report_worlds import whole_report
from trimaran.benchmarks.report import step_summary
from trimaran.benchmarks.report.render_csv import HEAD, render_csv
from trimaran.benchmarks.report.render_markdown import render_markdown
from trimaran.benchmarks.report.report_files import write_reports
from trimaran.benchmarks.report.step_summary import LIMIT_BYTES, VARIABLE, add_to_step_summary
from trimaran.benchmarks.scenarios.finals import figures_of


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_csv_has_every_number_once_with_its_interval() -> None:
    found = whole_report()
    rows = rows_of(render_csv(found))
    assert set(rows[0]) == set(HEAD)
    assert {row["candidate"] for row in rows} == {"eager", "eager-bf16", "quick", "slow", "wrong", "crashing"}
    speed = [row for row in rows if row["kind"] == "speed-up" and row["candidate"] == "quick"]
    assert len(speed) == 3 and all(float(r["low"]) <= float(r["value"]) <= float(r["high"]) for r in speed)
    figures = sum(len(figures_of(result)) for result in found.scenarios)
    assert len([row for row in rows if row["where"].startswith(("engine", "pipeline", "served"))]) == figures
    assert any("stopped answering" in row["cut"] for row in rows)


def test_a_cell_that_a_spreadsheet_would_run_is_text() -> None:
    rows = rows_of(render_csv(usual_report().model_copy(update={"model": "=cmd()"})))
    assert {row["model"] for row in rows} == {"'=cmd()"}


def test_the_markdown_names_the_final_number_of_every_scenario_and_what_was_cut() -> None:
    text = render_markdown(whole_report())
    assert "| Open loop | `quick` | served grpc | rate within 25 ms at p99 150 requests/s" in text
    assert "cut: The server at 127.0.0.1:8000 stopped answering" in text
    assert "`eager-bf16` is eager bf16, attention sdpa." in text
    assert len({line.count(" | ") for line in text.splitlines() if line.startswith("| Open loop")}) == 1


def test_a_step_summary_gets_the_markdown_after_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = tmp_path / "summary.md"
    page.write_text("before\n")
    monkeypatch.setenv(VARIABLE, str(page))
    write_reports(usual_report(), tmp_path / "report")
    assert page.read_text().startswith("before\n## ") and "Speed-up over eager" in page.read_text()
    page.write_text("x" * (LIMIT_BYTES - 200))
    add_to_step_summary(render_markdown(usual_report()))
    assert page.stat().st_size < LIMIT_BYTES and "does not fit" in page.read_text()[-200:]
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no" / "such" / "folder"))
    # Libraries that configure logging, in tests before this one, may have switched every logger off.
    monkeypatch.setattr(step_summary._LOG, "disabled", False)
    with caplog.at_level("WARNING", logger=step_summary._LOG.name):
        assert add_to_step_summary("text") is None
    assert "step summary cannot be written" in caplog.text
    monkeypatch.delenv(VARIABLE)
    assert add_to_step_summary("text") is None
