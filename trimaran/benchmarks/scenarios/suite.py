"""A suite: what to measure and how long, as a TOML file that is checked whole before any work."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic import ValidationError as SchemaError

from trimaran.benchmarks.measure.baselines import baselines
from trimaran.benchmarks.measure.runner import Effort
from trimaran.benchmarks.scenarios.settings import AnyScenarioSettings, SuiteUnit, units_of
from trimaran.core.artifact import digest_of
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen


class Suite(Frozen):
    """What one TOML file asks for."""

    name: str
    describe: str = ""
    # Of the race of all candidates.
    effort: Effort = Effort()
    # Those that compete when the user names none; empty is the default set of candidates.
    candidates: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    # Whether the harness itself is checked.
    harness: bool = False
    # Whether the model's bare matrix products are timed.
    ceiling: bool = False
    # How many real texts the scenarios ask.
    texts: int = Field(default=64, ge=1)
    scenarios: tuple[AnyScenarioSettings, ...] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.model_dump(mode="json"))

    @property
    def units(self) -> tuple[SuiteUnit, ...]:
        return units_of(self.scenarios)


def shipped_suites() -> dict[str, Path]:
    folder = Path(str(resources.files("trimaran.benchmarks.scenarios"))) / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_suite(name: str) -> Suite:
    """A shipped suite by its name, or any TOML file by its path. Raises UsageError for one that asks for nothing."""
    shipped = shipped_suites()
    path = shipped.get(name, Path(name))
    if not path.is_file():
        raise UsageError(
            f"There is no suite {name!r}.", hint=f"Shipped: {', '.join(shipped)}; or give the path of a TOML file."
        )
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The suite {path} is not TOML: {error}.") from error
    return suite_from_data(data, name=path.stem, where=str(path))


def suite_from_data(data: dict[str, Any], *, name: str, where: str) -> Suite:
    try:
        suite = Suite.model_validate({"name": name, **data})
    except SchemaError as error:
        raise UsageError(f"The suite {where} is not right: {_first(error)}.") from error
    if not suite.scenarios:
        raise UsageError(
            f"The suite {where} is empty: it asks for no scenario.",
            hint='Add at least one table such as [[scenarios]] with scenario = "single-stream".',
        )
    baselines(suite.baselines)
    return suite


def _first(error: SchemaError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {key}"
    return f"{key}: {first['msg']}"
