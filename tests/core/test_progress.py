from __future__ import annotations

import io

import pytest

from trimaran.core.progress import LineProgress, LiveProgress, NumberedProgress, SilentProgress, progress_for


def test_a_log_gets_a_plain_line_for_each_stage() -> None:
    stream = io.StringIO()
    progress = progress_for(stream)
    assert isinstance(progress, LineProgress)
    with progress.stage("export") as step:
        step.advance(1, 9)
        step.outcome("max |Δ| 1e-07")
    assert stream.getvalue().startswith("export: max |Δ| 1e-07 (")
    assert "\x1b" not in stream.getvalue() and stream.getvalue().count("\n") == 1


def test_a_failed_stage_leaves_no_line_that_says_done() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no"), LineProgress(stream).stage("export"):
        raise ValueError("no")
    assert "done" not in stream.getvalue()


def test_a_terminal_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveProgress()
    with live.stage("export") as step:
        step.advance(1, 2, "[batch, sequence]")
        step.outcome("axes [batch, sequence]")
    live.note("labels [red]")
    said = capsys.readouterr().err
    assert "axes [batch, sequence]" in said
    assert "labels [red]" in said


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with SilentProgress().stage("export") as step:
        step.advance(1, 2)
        step.outcome("x")
    assert capsys.readouterr() == ("", "")


def test_stages_are_numbered_in_the_order_they_begin() -> None:
    stream = io.StringIO()
    progress = NumberedProgress(LineProgress(stream), 2)
    with progress.stage("first"), progress.stage("second"):
        progress.note("between")
    lines = stream.getvalue().splitlines()
    assert [line.split(":")[0] for line in lines] == ["between", "[2 of 2] second", "[1 of 2] first"]
