"""What a suite has measured so far, on disk beside its report, so that a run that was cut can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trimaran.benchmarks.measure.ceiling import Ceiling
from trimaran.benchmarks.measure.harness import HarnessCheck
from trimaran.benchmarks.scenarios.results import ScenarioResult, SuiteRun
from trimaran.benchmarks.scenarios.settings import SuiteUnit
from trimaran.core.errors import UsageError
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Frozen
from trimaran.core.store import write_atomically

FILE = "suite-state.json"


class UnitResults(Frozen):
    """The results of one unit, one for each candidate."""

    key: str
    results: tuple[ScenarioResult, ...]


class SuiteState(Persisted):
    """The file `suite-state.json`."""

    what: ClassVar[str] = "state of a suite"
    remedy: ClassVar[str] = "Run it without --resume."

    suite: str
    # Suite, model, machine, threads: all that must be alike for results to belong together.
    conditions: dict[str, str]
    resumed: int = 0
    found: tuple[UnitResults, ...] = ()
    harness: HarnessCheck | None = None
    ceilings: tuple[Ceiling, ...] = ()

    def of(self, unit: SuiteUnit) -> UnitResults | None:
        return next((results for results in self.found if results.key == unit.key), None)

    def having(self, unit: SuiteUnit, results: tuple[ScenarioResult, ...]) -> SuiteState:
        others = tuple(other for other in self.found if other.key != unit.key)
        return self.model_copy(update={"found": (*others, UnitResults(key=unit.key, results=results))})

    def whole_only(self) -> SuiteState:
        """Without the units that were cut: those are measured again."""
        kept = tuple(unit for unit in self.found if not any(result.cut for result in unit.results))
        return self.model_copy(update={"found": kept, "resumed": self.resumed + 1})


def save(state: SuiteState, folder: Path) -> None:
    write_atomically(folder / FILE, state.to_json())


def forget(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)


def begin(folder: Path, suite: str, conditions: dict[str, str], *, resume: bool) -> SuiteState:
    """An empty state, or with `resume` the state of an earlier run of the same suite under the same conditions."""
    fresh = SuiteState(suite=suite, conditions=conditions)
    path = folder / FILE
    if not resume:
        return fresh
    if not path.is_file():
        raise UsageError(
            f"There is nothing to take up in {folder}: no run of a suite was cut there.",
            hint="Run it without --resume.",
        )
    state = SuiteState.read(path)
    unlike = [name for name in conditions if state.conditions.get(name) != conditions[name]]
    if unlike:
        differences = "; ".join(
            f"{name}: {state.conditions.get(name, 'none')} and now {conditions[name]}" for name in unlike
        )
        raise UsageError(
            f"The run in {folder} was begun under other conditions ({differences}), so its results do not belong "
            "together.",
            hint="Run it without --resume, or as it was begun.",
        )
    return state.whole_only()


def suite_run(state: SuiteState, *, digest: str, scenarios: tuple[str, ...], cut: str | None) -> SuiteRun:
    return SuiteRun(name=state.suite, digest=digest, scenarios=scenarios, cut=cut, resumed=state.resumed)
