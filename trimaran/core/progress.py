"""How a run tells where it is: a live display on a terminal, plain lines in a log, nothing when asked."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TextIO


class Progress(Protocol):
    """Stages report to this; they never print."""

    def stage(self, title: str) -> contextlib.AbstractContextManager[Step]: ...

    def note(self, text: str) -> None: ...


class Step(Protocol):
    def advance(self, done: int, total: int | None, what: str = "") -> None: ...

    def outcome(self, text: str) -> None: ...


class _SilentStep:
    def advance(self, done: int, total: int | None, what: str = "") -> None:
        pass

    def outcome(self, text: str) -> None:
        pass


class SilentProgress:
    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        yield _SilentStep()

    def note(self, text: str) -> None:
        pass


class ExpectedStage(NamedTuple):
    """How long a stage will take, about."""

    seconds: float
    # What it adds to the run: less than `seconds` if other stages run beside it.
    share_s: float


class TimeLeft:
    """What is left of a run, from the stages that are expected and the pace of those that ended.

    A run that takes twice as long as expected for its first half is expected to do so for the rest.
    """

    # The expectation counts like this share of the run, so that the first stage alone does not decide.
    _TRUST = 0.2

    def __init__(self, expected: Mapping[str, ExpectedStage], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._expected, self._clock_s = expected, clock_s
        self.total_s = sum(stage.share_s for stage in expected.values())
        self._begun_s = clock_s()
        self._running: dict[str, float] = {}
        self._done: set[str] = set()

    def begin(self, title: str) -> None:
        self._running[title] = self._clock_s()

    def end(self, title: str) -> None:
        self._running.pop(title, None)
        self._done.add(title)

    def left_s(self) -> float:
        now_s = self._clock_s()
        done_s = sum(stage.share_s for title, stage in self._expected.items() if title in self._done)
        for title, since_s in list(self._running.items()):
            if stage := self._expected.get(title):
                done_s += stage.share_s * min(0.95, (now_s - since_s) / stage.seconds)
        pace = (now_s - self._begun_s + self._TRUST * self.total_s) / (done_s + self._TRUST * self.total_s)
        return max(0.0, (self.total_s - done_s) * pace)

    def __str__(self) -> str:
        return f"{about(self.left_s())} left"


def about(seconds: float) -> str:
    """Such as `about 40 s`, `about 3 min`."""
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


class _TimedStep:
    """Adds the time left to the outcome of a stage."""

    def __init__(self, step: Step) -> None:
        self.advance = step.advance
        self.text = ""

    def outcome(self, text: str) -> None:
        self.text = text


class NumberedProgress:
    """Puts `[3 of 8]` before the title of each stage that begins. Stages may begin in several threads.

    With `expected` stages, the time left comes after the outcome of each: `; about 2 min left`.
    """

    def __init__(self, progress: Progress, total: int, *, expected: Mapping[str, ExpectedStage] | None = None) -> None:
        self._progress, self._total = progress, total
        self._numbers = itertools.count(1)
        self.note = progress.note
        self._time_left = TimeLeft(expected) if expected else None
        if isinstance(progress, LiveProgress):
            progress.time_left = self._time_left

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        left = self._time_left
        with self._progress.stage(f"[{next(self._numbers)} of {self._total}] {title}") as step:
            if left is None:
                yield step
                return
            timed = _TimedStep(step)
            left.begin(title)
            yield timed
            left.end(title)
            # A live display has a column for it, which does not stand still.
            ended = isinstance(self._progress, LiveProgress) or left.left_s() < 1
            step.outcome(timed.text if ended else f"{timed.text or 'done'}; {left}")


class _LineStep:
    def __init__(self, write: LineProgress, title: str) -> None:
        self._write, self._title = write, title
        self._last_s = time.monotonic()
        self.text = ""

    def advance(self, done: int, total: int | None, what: str = "") -> None:
        now = time.monotonic()
        if now - self._last_s >= 10:
            self._last_s = now
            self._write.note(f"{self._title}: {done}{f'/{total}' if total else ''} {what}".rstrip())

    def outcome(self, text: str) -> None:
        self.text = text


class LineProgress:
    """One line when a stage ends, one every ten seconds inside a long one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        begun_s = time.monotonic()
        step = _LineStep(self, title)
        yield step
        self.note(f"{title}: {step.text or 'done'} ({time.monotonic() - begun_s:.1f} s)")

    def note(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class _LiveStep:
    def __init__(self, live: LiveProgress, task: int, title: str) -> None:
        self._live, self._task, self._title = live, task, title
        self.text = ""

    def advance(self, done: int, total: int | None, what: str = "") -> None:
        from rich.markup import escape

        title = f"{escape(self._title)} [dim]{escape(what)}[/dim]" if what else escape(self._title)
        self._live.bars.update(self._task, completed=done, total=total, description=title)  # type: ignore[arg-type]

    def outcome(self, text: str) -> None:
        self.text = text


class LiveProgress:
    """A spinner and a bar on a terminal; a finished stage leaves its line above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            ProgressColumn,
            SpinnerColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
        )
        from rich.progress import Progress as Bars
        from rich.text import Text

        self.console = Console(stderr=True)
        self.time_left: TimeLeft | None = None
        live = self

        class TimeLeftColumn(ProgressColumn):
            """What is left of the whole run, on the first line."""

            def render(self, task: Task) -> Text:
                first = live.bars.tasks[:1] == [task]
                return Text(str(live.time_left), style="dim") if live.time_left and first else Text("")

        self.bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeLeftColumn(),
            console=self.console,
            transient=True,
        )

    @contextlib.contextmanager
    def stage(self, title: str) -> Iterator[Step]:
        begun_s = time.monotonic()
        if not self.bars.tasks:
            self.bars.start()
        from rich.markup import escape

        task = self.bars.add_task(escape(title), total=None)
        step = _LiveStep(self, task, title)
        try:
            yield step
        finally:
            self.bars.remove_task(task)
            self._stop_if_idle()
        spent = f"[dim]{time.monotonic() - begun_s:.1f} s[/dim]"
        self.console.print(f"[green]✓[/green] {escape(title)}: {escape(step.text or 'done')} {spent}", highlight=False)

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def _stop_if_idle(self) -> None:
        if not self.bars.tasks:
            self.bars.stop()


def progress_for(stream: TextIO) -> Progress:
    return LiveProgress() if stream.isatty() else LineProgress(stream)
