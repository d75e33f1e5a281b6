from __future__ import annotations

import io

import pytest

from trimaran.core.progress import (
    ExpectedStage,
    LineProgress,
    LiveProgress,
    NumberedProgress,
    SilentProgress,
    TimeLeft,
    about,
    progress_for,
)


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


def test_the_time_left_follows_the_pace_of_the_stages_that_ended() -> None:
    now_s = 0.0
    left = TimeLeft({"a": ExpectedStage(10, 10), "b": ExpectedStage(30, 30)}, clock_s=lambda: now_s)
    assert left.left_s() == 40
    left.begin("a")
    now_s = 5.0
    assert left.left_s() == 35, "half of the first stage is over, as expected"
    now_s = 20.0
    left.end("a")
    assert 30 < left.left_s() < 60, "the first stage took twice its time, and so may the rest"
    left.begin("b")
    left.end("b")
    assert left.left_s() == 0


def test_a_stage_says_the_time_left_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {"first": ExpectedStage(600, 600), "second": ExpectedStage(120, 120)}
    stream = io.StringIO()
    progress = NumberedProgress(LineProgress(stream), 2, expected=expected)
    with progress.stage("first") as step:
        step.outcome("well")
    assert stream.getvalue().startswith("[1 of 2] first: well; about")
    assert " left (" in stream.getvalue()
    with progress.stage("second"):
        pass
    assert stream.getvalue().splitlines()[-1].startswith("[2 of 2] second: done (")
    live = LiveProgress()
    with NumberedProgress(live, 2, expected=expected).stage("first"):
        (line,) = (live.bars.columns[-1](task).plain for task in live.bars.tasks)
        assert line == "about 12 min left"
    assert "[1 of 2] first" in capsys.readouterr().err


@pytest.mark.parametrize(("seconds", "words"), [(0, "about 5 s"), (43, "about 45 s"), (200, "about 3 min")])
def test_durations_are_rounded_for_people(seconds: float, words: str) -> None:
    assert about(seconds) == words
