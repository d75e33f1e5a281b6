"""What a suite has found so far, on disk beside its report: a run that was cut is taken up from there."""

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
    """The results of one unit, one a candidate."""

    key: str
    results: tuple[ScenarioResult, ...]


class SuiteState(Persisted):
    """`conditions` are all that must be alike for results to be put together: suite, model, machine, threads."""

    what: ClassVar[str] = "state of a suite"
    remedy: ClassVar[str] = "Run it without --resume."

    suite: str
    conditions: dict[str, str]
    resumed: int = 0
    found: tuple[UnitResults, ...] = ()
    harness: HarnessCheck | None = None
    ceilings: tuple[Ceiling, ...] = ()

    def of(self, unit: SuiteUnit) -> UnitResults | None:
        return next((found for found in self.found if found.key == unit.key), None)

    def having(self, unit: SuiteUnit, results: tuple[ScenarioResult, ...]) -> SuiteState:
        others = tuple(found for found in self.found if found.key != unit.key)
        return self.model_copy(update={"found": (*others, UnitResults(key=unit.key, results=results))})

    def whole_only(self) -> SuiteState:
        """Without the units that were cut: those are measured again."""
        kept = tuple(found for found in self.found if not any(result.cut for result in found.results))
        return self.model_copy(update={"found": kept, "resumed": self.resumed + 1})


def save(state: SuiteState, folder: Path) -> None:
    write_atomically(folder / FILE, state.to_json())


def forget(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)


def begin(folder: Path, suite: str, conditions: dict[str, str], *, resume: bool) -> SuiteState:
    """An empty state, or with `resume` what an earlier run of the same suite under the same conditions left."""
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
        said = "; ".join(f"{name}: {state.conditions.get(name, 'none')} and now {conditions[name]}" for name in unlike)
        raise UsageError(
            f"The run in {folder} was begun under other conditions ({said}), so its results do not belong together.",
            hint="Run it without --resume, or as it was begun.",
        )
    return state.whole_only()


def suite_run(state: SuiteState, *, digest: str, scenarios: tuple[str, ...], cut: str | None) -> SuiteRun:
    return SuiteRun(name=state.suite, digest=digest, scenarios=scenarios, cut=cut, resumed=state.resumed)
