"""The settings of each scenario in a suite: one small type each, with only the settings that it has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trimaran.benchmarks.scenarios.results import At, Wire
from trimaran.core.artifact import digest_of
from trimaran.core.spec import Frozen

InProcess = Literal["engine", "pipeline"]
FromText = Literal["pipeline", "served"]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0)]
PositiveLimit = Annotated[float, Field(gt=0)]


class ScenarioSettings(Frozen):
    """What every scenario has."""

    # Names, or `chosen`, `passed` and `baselines`. Only candidates in the repository can be served.
    candidates: tuple[str, ...] = Field(default=("eager", "chosen"), min_length=1)
    # A scenario that takes longer ends here, is marked as cut and keeps what it measured.
    limit_s: PositiveLimit = 60.0


class SingleStreamSettings(ScenarioSettings):
    scenario: Literal["single-stream"]
    at: tuple[At, ...] = Field(default=("engine", "pipeline", "served"), min_length=1)
    wires: tuple[Wire, ...] = Field(default=("grpc",), min_length=1)
    samples: Positive = 64
    time_s: Seconds = 1.0
    warmup: int = Field(default=8, ge=0)
    rounds: Positive = 3


class ShapeGridSettings(ScenarioSettings):
    scenario: Literal["shape-grid"]
    at: tuple[Literal["engine"], ...] = Field(default=("engine",), min_length=1)
    batches: tuple[Positive, ...] = Field(default=(1, 8, 32), min_length=1)
    sequences: tuple[Positive, ...] = Field(default=(16, 64, 128), min_length=1)
    samples: Positive = 3
    time_s: Seconds = 0.05
    warmup: int = Field(default=1, ge=0)
    rounds: Positive = 2


class MixedLengthsSettings(ScenarioSettings):
    scenario: Literal["mixed-lengths"]
    at: tuple[InProcess, ...] = Field(default=("pipeline",), min_length=1)
    batch: Positive = 16
    rounds: Positive = 5


class OfflineSettings(ScenarioSettings):
    scenario: Literal["offline"]
    at: tuple[At, ...] = Field(default=("pipeline",), min_length=1)
    wires: tuple[Wire, ...] = Field(default=("grpc",), min_length=1)
    rounds: Positive = 5
    callers: Positive = 8


class ClosedLoopSettings(ScenarioSettings):
    scenario: Literal["closed-loop"]
    at: tuple[Literal["served"], ...] = Field(default=("served",), min_length=1)
    wires: tuple[Wire, ...] = Field(default=("grpc",), min_length=1)
    concurrency: tuple[Positive, ...] = Field(default=(1, 2, 4, 8), min_length=1)
    samples: Positive = 50
    time_s: Seconds = 1.0


class OpenLoopSettings(ScenarioSettings):
    """Rising rates of Poisson arrivals."""

    scenario: Literal["open-loop"]
    at: tuple[Literal["served"], ...] = Field(default=("served",), min_length=1)
    wires: tuple[Wire, ...] = Field(default=("grpc",), min_length=1)
    budget_ms: PositiveLimit = 50.0
    share: float = Field(default=99.0, gt=0, le=100)
    # The rates, as shares of what one caller gets through.
    shares_of_one_caller: tuple[float, ...] = Field(default=(0.25, 0.5, 0.75, 1.0, 1.5, 2.0), min_length=1)
    # Further rates between the last one that kept the budget and the first that broke it.
    refine: int = Field(default=2, ge=0)
    samples: Positive = 100
    time_s: Seconds = 2.0
    callers: Positive = 32


class ColdStartSettings(ScenarioSettings):
    scenario: Literal["cold-start"]
    at: tuple[FromText, ...] = Field(default=("pipeline",), min_length=1)
    starts: Positive = 3


class MemorySettings(ScenarioSettings):
    scenario: Literal["memory"]
    at: tuple[Literal["pipeline"], ...] = Field(default=("pipeline",), min_length=1)


class SizeSettings(ScenarioSettings):
    scenario: Literal["size"]
    at: tuple[Literal["engine"], ...] = Field(default=("engine",), min_length=1)


class EnergySettings(ScenarioSettings):
    scenario: Literal["energy"]
    at: tuple[Literal["pipeline"], ...] = Field(default=("pipeline",), min_length=1)
    rounds: Positive = 3


AnyScenarioSettings = Annotated[
    SingleStreamSettings
    | ShapeGridSettings
    | MixedLengthsSettings
    | OfflineSettings
    | ClosedLoopSettings
    | OpenLoopSettings
    | ColdStartSettings
    | MemorySettings
    | SizeSettings
    | EnergySettings,
    Field(discriminator="scenario"),
]


class SuiteUnit(Frozen):
    """One scenario at one level over one wire: it is run, kept and resumed as a whole."""

    asked: AnyScenarioSettings
    at: At
    wire: Wire | None = None

    @property
    def title(self) -> str:
        return f"{self.asked.scenario}, {self.at}{f' over {self.wire}' if self.wire else ''}"

    @property
    def key(self) -> str:
        return f"{self.asked.scenario}-{digest_of(self.model_dump(mode='json'))[:16]}"


def units_of(scenarios: tuple[AnyScenarioSettings, ...]) -> tuple[SuiteUnit, ...]:
    """Everything that the scenarios ask for, in their order."""
    units: list[SuiteUnit] = []
    for settings in scenarios:
        for at in settings.at:
            wires: tuple[Wire | None, ...] = getattr(settings, "wires", (None,)) if at == "served" else (None,)
            units.extend(SuiteUnit(asked=settings, at=at, wire=wire) for wire in wires)
    return tuple(units)
