from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.fakes import FAILED, report, row, usual_report
from trimaran.benchmarks.measure.steadiness import unsteady
from trimaran.benchmarks.report.older_reports import NOTE
from trimaran.benchmarks.report.plots import _truth_scale, latency_ecdf, speed_against_fidelity, speedup_bars
from trimaran.benchmarks.report.report import Report
from trimaran.benchmarks.report.report_files import FORMATS, read_report, write_reports
from trimaran.benchmarks.report.summary import summary_json, summary_reasons, summary_table
from trimaran.benchmarks.report.wording import METRICS, number
from trimaran.core.errors import IntegrityError, UnavailableError, UsageError
from trimaran.core.samples import Round, Shape
from trimaran.core.tasks import TASKS


class Outline(HTMLParser):
    """Tags that are open, and the visible text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data


def test_every_format_renders_the_same_from_the_json(tmp_path: Path) -> None:
    found = usual_report()
    paths = write_reports(found, tmp_path / "new" / "folder")
    assert sorted(paths) == ["csv", "html", "json", "md", "xml"]
    again = read_report(paths["json"])
    assert again == found
    for name, render in FORMATS.items():
        assert render(again) == (tmp_path / "new" / "folder" / name).read_text(encoding="utf-8")
    assert read_report(tmp_path / "new" / "folder") == found
    assert not [path for path in (tmp_path / "new" / "folder").iterdir() if path.name.startswith(".")]


def test_an_older_report_is_told_anew_within_rounds_and_keeps_its_choice(tmp_path: Path) -> None:
    found = usual_report()
    old = json.loads(found.to_json())
    del old["speed_figures"]
    old["verdict"]["speed"] = "quick runs tiny faster than eager PyTorch: 3629.89× at 1x8 (1.09–296.38)."
    old["candidates"][1]["reason"] = "It keeps every gate, slower than quick: 7.00× at 1x8 and 7.00× at 1x4."
    (tmp_path / "report.json").write_text(json.dumps(old))
    again = read_report(tmp_path)
    assert again.verdict == found.verdict
    assert again.row("slow").reason == found.row("slow").reason
    assert again.notes == (*found.notes, NOTE)


def test_the_html_needs_nothing_from_elsewhere_and_runs_one_script_alone() -> None:
    html = FORMATS["report.html"](usual_report())
    assert not re.search(r"https?:|//[a-z]|src=|href=|@import|url\(|<link", html)
    policy = unescape(re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', html)[0])
    assert policy.startswith("default-src 'none'; ")
    scripts = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    assert len(scripts) == html.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert policy.endswith(f"; script-src 'sha256-{digest}'")


def test_the_html_is_well_formed_and_escapes_what_others_wrote() -> None:
    outline = Outline(FORMATS["report.html"](usual_report()))
    assert outline.open == []
    assert outline.seen.count("script") == 1
    assert "tiny & <co>" in outline.text
    assert "<script>alert('x')</script>" in outline.text
    assert "A <fast> CPU" in outline.text


def test_the_html_opens_with_the_verdict_and_says_why_not() -> None:
    found = usual_report()
    text = Outline(FORMATS["report.html"](found)).text.replace("\N{WORD JOINER}", "")
    text = text.replace("\N{NON-BREAKING HYPHEN}", "-")
    assert text.index(found.verdict.speed) < text.index(found.verdict.truth) < text.index("Candidates")
    assert "Top-10 overlap 0.913 is below its limit 0.97." in text
    assert "trimaran deploy -m 'my model' --threads 2" in text


def test_every_plot_has_its_numbers_in_a_table() -> None:
    html = FORMATS["report.html"](usual_report())
    assert html.count("<details>") == 3
    for section in html.split("<h2>"):
        if "<figure>" in section:
            assert "<details>" in section


def test_tables_scroll_in_their_own_frame() -> None:
    html = FORMATS["report.html"](usual_report())
    assert html.count("<table>") == html.count('<div class="scroll"')


def test_plots_are_drawn_from_the_samples() -> None:
    found = usual_report()
    shape = Shape(batch=1, sequence=8)
    assert speedup_bars(found, shape).count('class="bar ') == 3
    assert latency_ecdf(found, shape).count("<path") == 4
    pareto = speed_against_fidelity(found)
    assert pareto is not None
    assert pareto.count('class="ring"') == 1
    assert "gate 0.97" in pareto


def test_a_truer_point_lies_further_right_whether_the_metric_rises_or_falls() -> None:
    rising = _truth_scale([0.9, 1.0], 0.97, falling=False)
    assert rising(0.9) < rising(0.97) < rising(1.0)
    falling = _truth_scale([0.0, 0.004], 0.0012, falling=True)
    assert falling(0.004) < falling(0.0012) < falling(0.0)
    assert _truth_scale([0.0], None, falling=True)(0.0) > 34.0


def test_a_report_of_failures_alone_still_renders() -> None:
    found = report([FAILED, row("wrong", neighbour_overlap=0.2)], {})
    for render in FORMATS.values():
        assert "crashing" in render(found)
    assert speed_against_fidelity(found) is None
    assert found.verdict.chosen is None


def test_a_report_with_numbers_that_are_not_finite_still_renders_and_is_json() -> None:
    found = report([row("nan", mean_cosine_distance=float("nan"), batch_change=float("inf"))], {"nan": 2.0})
    for render in FORMATS.values():
        assert "not finite" in render(found) or "NaN" in render(found)
    json.loads(found.to_json(), parse_constant=pytest.fail)
    json.loads(json.dumps(summary_json(found)), parse_constant=pytest.fail)


def test_the_markdown_fits_a_pull_request_comment_and_keeps_its_table() -> None:
    text = FORMATS["report.md"](usual_report())
    assert len(text) < 20_000
    many = usual_report().model_copy(
        update={"candidates": tuple(row(f"candidate-{index}", batch_change=1.0) for index in range(600))}
    )
    assert 50_000 < len(FORMATS["report.md"](many)) < 65_536
    assert "cut to fit" in FORMATS["report.md"](many)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({line.count(" | ") for line in rows}) == 1
    assert "<script>" not in text


def edited(found: Report, **changes: Any) -> str:
    return json.dumps({**json.loads(found.to_json()), **changes})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda found: found.to_json()[:500], "damaged report"),
        (lambda found: "[1, 2]", "no schema number"),
        (lambda found: edited(found, schema=3), "schema 3; this version of trimaran reads schemas 1 to 2"),
        (lambda found: edited(found, threads="many"), "damaged report: threads"),
        (lambda found: edited(found, surprise=1), "surprise"),
        (
            lambda found: edited(
                found, profile={"batch": {"minimum": 3, "typical": 2, "maximum": 1}, "sequence": [1, 2, 3]}
            ),
            "damaged report",
        ),
        (lambda found: "\udcff", "damaged report"),
    ],
)
def test_a_damaged_report_is_a_sentence(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content(usual_report()).encode("utf-8", "surrogateescape"))
    with pytest.raises(IntegrityError, match=re.escape(words)):
        read_report(path)


def test_a_report_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no report at"):
        read_report(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(UnavailableError, match="cannot be written"):
        write_reports(usual_report(), blocked / "folder")
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208


def test_the_summary_for_scripts_has_every_promised_field() -> None:
    found = summary_json(usual_report())
    assert found["winner"] == "quick"
    for candidate in found["candidates"]:
        assert {
            "name", "backend", "precision", "verdict", "reason", "speedup", "quality", "size_bytes",
            "peak_memory_bytes",
        } <= set(candidate)  # fmt: skip
    quick = found["candidates"][0]
    assert set(quick["speedup"]) == {"1x4", "1x8", "4x8"}
    assert set(quick["speedup"]["1x8"]) == {"median", "low", "high"}
    assert quick["quality"]["neighbour_overlap"] == 1.0
    assert all(gate["holds"] for gate in quick["quality"]["gates"])
    assert json.loads(json.dumps(found)) == found


def test_the_terminal_table_has_a_row_for_each_and_the_reasons_follow() -> None:
    found = usual_report()
    assert summary_table(found).row_count == 5
    assert [reason.split()[0] for reason in summary_reasons(found)] == ["wrong", "crashing"]


def test_rounds_that_disagree_are_said_and_not_averaged_away() -> None:
    found = usual_report()
    assert unsteady(found.measurements) == ""
    first = found.measurements[0]
    slow = Round(samples_ns=tuple(sample * 9 for sample in first.rounds[0].samples_ns))
    noisy = first.model_copy(update={"rounds": (slow, *first.rounds[1:])})
    said = unsteady((noisy, *found.measurements[1:]))
    assert "1 of 60 turns" in said
    assert "eager at 1x4" in said


def test_every_gated_metric_has_words_for_people() -> None:
    gated = {gate.metric for row_ in TASKS.values() for gates in row_.gates.values() for gate in gates}
    assert gated <= set(METRICS)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9988, "0.9988"), (0.9999, "0.9999"), (1.0, "1"), (3e-16, "3e-16"), (0.0, "0"), (float("nan"), "not finite")],
)
def test_numbers_are_written_without_hiding_what_is_left_to_one(value: float, text: str) -> None:
    assert number(value) == text
