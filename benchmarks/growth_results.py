"""What one run of `growth.py` found, as it is committed; every number of the page is computed from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from trimaran.benchmarks.measure.measurement import Measurement
from trimaran.benchmarks.report.report import json_of
from trimaran.core.environment import Environment
from trimaran.core.spec import Frozen
from trimaran.judging.stats import median

RESULT = Path(__file__).parent / "results" / "growth.json"


class Point(Frozen):
    """One place of a curve: eager and the engine measured side by side; `operations` are those of the products."""

    x: int
    words: str = ""
    operations: int
    measurements: tuple[Measurement, ...]

    def seconds(self, candidate: str) -> float | None:
        found = next((one for one in self.measurements if one.candidate == candidate), None)
        return median(found.samples_ns) / 1e9 if found else None


class Curve(Frozen):
    name: Literal["length", "batch", "size"]
    unit: str
    points: tuple[Point, ...]
    # Share of the cores that other processes used meanwhile.
    others_share: float | None = None


class Served(Frozen):
    """Several models in one server: until it was ready, its memory after all were asked, one model's latencies."""

    models: int
    started_ns: int
    memory_bytes: int
    latencies_ns: tuple[int, ...]


class Growth(Frozen):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    created: str
    environment: Environment
    threads: int
    engine: str
    curves: tuple[Curve, ...]
    served: tuple[Served, ...] = ()

    def to_json(self) -> str:
        return json_of(self)


def read_growth(path: Path = RESULT) -> Growth:
    return Growth.model_validate_json(path.read_text(encoding="utf-8"))
