"""How far a suite is: a live table on a terminal, a line a scenario in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from trimaran.benchmarks.report.wording import number
from trimaran.benchmarks.scenarios.finals import final
from trimaran.benchmarks.scenarios.results import ScenarioResult
from trimaran.benchmarks.scenarios.settings import SuiteUnit

_MARKS = {"waiting": "·", "running": "▸", "done": "✓", "kept": "✓", "cut": "⚠"}


class SuiteBoard:
    """Told what happens; `lines` are written as units end. `TerminalBoard` shows the whole table instead."""

    def __init__(self, units: Sequence[SuiteUnit], stream: TextIO) -> None:
        self._stream = stream
        self._states: dict[str, str] = {unit.key: "waiting" for unit in units}
        self._said: dict[str, str] = {}
        self._titles = {unit.key: unit.title for unit in units}
        self._begun_s = time.monotonic()
        self._last_s = self._begun_s

    @contextmanager
    def shown(self) -> Iterator[SuiteBoard]:
        yield self

    def begin(self, unit: SuiteUnit) -> None:
        self._states[unit.key], self._said[unit.key] = "running", ""
        self._begun_s = self._last_s = time.monotonic()
        self.changed(unit.key)

    def step(self, unit: SuiteUnit) -> UnitStep:
        return UnitStep(self, unit.key)

    def advance(self, key: str, done: int, total: int | None, what: str) -> None:
        self._said[key] = f"{done}/{total or '?'} {what}".rstrip()
        now_s = time.monotonic()
        if now_s - self._last_s >= 10:
            self._last_s = now_s
            self.changed(key)

    def end(self, unit: SuiteUnit, results: Sequence[ScenarioResult], *, kept: bool = False) -> None:
        cut = any(result.cut for result in results)
        self._states[unit.key] = "cut" if cut else "kept" if kept else "done"
        self._said[unit.key] = outcome(results) + ("" if kept else f" ({time.monotonic() - self._begun_s:.1f} s)")
        self.changed(unit.key)

    def changed(self, key: str) -> None:
        state = self._states[key]
        words = f", from the earlier run: {self._said[key]}" if state == "kept" else f": {self._said[key]}"
        if self._said[key]:
            self._stream.write(f"{self._titles[key]}{words}\n")
            self._stream.flush()


class UnitStep:
    """A `progress.Step` of one row of the board."""

    def __init__(self, board: SuiteBoard, key: str) -> None:
        self._board, self._key = board, key

    def advance(self, done: int, total: int | None, what: str = "") -> None:
        self._board.advance(self._key, done, total, what)

    def outcome(self, text: str) -> None:
        pass


class TerminalBoard(SuiteBoard):
    """Every scenario of the suite in one table that is redrawn in place."""

    def __init__(self, units: Sequence[SuiteUnit], stream: TextIO) -> None:
        super().__init__(units, stream)
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=stream), auto_refresh=False)

    @contextmanager
    def shown(self) -> Iterator[SuiteBoard]:
        with self._live:
            self.redraw()
            yield self

    def advance(self, key: str, done: int, total: int | None, what: str) -> None:
        self._said[key] = f"{done}/{total or '?'} {what}".rstrip()
        self.redraw()

    def changed(self, key: str) -> None:
        self.redraw()

    def redraw(self) -> None:
        self._live.update(self.table(), refresh=True)

    def table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for head in ("", "scenario", "found"):
            table.add_column(head, overflow="fold")
        styles = {"waiting": "dim", "running": "bold", "cut": "yellow"}
        for key, state in self._states.items():
            table.add_row(
                _MARKS[state], Text(self._titles[key]), Text(self._said.get(key, "")), style=styles.get(state, "")
            )
        return table


def board_for(units: Sequence[SuiteUnit], stream: TextIO) -> SuiteBoard:
    return (TerminalBoard if stream.isatty() else SuiteBoard)(units, stream)


def outcome(results: Sequence[ScenarioResult]) -> str:
    """The final number of each candidate, or why there is none."""
    return "; ".join(f"{result.candidate} {_told(result)}" for result in results) or "no candidate for it"


def _told(result: ScenarioResult) -> str:
    figure = final(result)
    words = (
        f"{number(figure.value)} {figure.unit}" if figure else str(getattr(result, "unavailable", None) or "nothing")
    )
    return f"{words}, cut: {result.cut}" if result.cut else words
