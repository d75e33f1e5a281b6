"""How a run tells where it is: a live display on a terminal, plain lines in a log, nothing when asked."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Iterator
from typing import Protocol, TextIO


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


class NumberedProgress:
    """Puts `[3 of 8]` before the title of each stage that begins. Stages may begin in several threads."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._numbers = itertools.count(1)
        self.note = progress.note

    def stage(self, title: str) -> contextlib.AbstractContextManager[Step]:
        return self._progress.stage(f"[{next(self._numbers)} of {self._total}] {title}")


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
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self.console = Console(stderr=True)
        self.bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
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
        except BaseException:
            self.bars.remove_task(task)
            self._stop_if_idle()
            raise
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
