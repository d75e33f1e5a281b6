"""What a tuning found, as it is kept beside the model and reported."""

from __future__ import annotations

import statistics
from typing import ClassVar, Literal

from trimaran.core.environment import Environment
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Frozen
from trimaran.pipeline.tune.settings import Figures, Setting, TuneObjective

TUNING_FILE = "tuning.json"
Verdict = Literal["chosen", "finalist", "stopped", "rejected"]


class Round(Frozen):
    """Requests of one caller in nanoseconds each, then of many callers together."""

    alone_ns: tuple[int, ...]
    crowd_answers: int
    crowd_elapsed_ns: int

    @property
    def figures(self) -> Figures:
        return Figures(
            alone_s=statistics.median(self.alone_ns) / 1e9,
            crowd_per_s=self.crowd_answers / (self.crowd_elapsed_ns / 1e9),
        )


class Tried(Frozen):
    """`reason` says why a setting was stopped or rejected, or what it was chosen for."""

    setting: Setting
    rounds: tuple[Round, ...]
    verdict: Verdict
    reason: str = ""

    @property
    def figures(self) -> Figures | None:
        return combined(self.rounds) if self.rounds else None


class Tuning(Persisted):
    """`tuning.json`: every setting that was tried of one version of a model, and why one of them is served.

    `others_share` is the part of the CPUs that other processes took meanwhile; None where the system does not say.
    """

    what: ClassVar[str] = "record of a tuning"

    model: str
    version: int
    task: str
    objective: TuneObjective
    cpus: int
    callers: int
    texts: int
    budget_s: float
    spent_s: float
    others_share: float | None
    present: Setting
    chosen: Setting
    reason: str
    tried: tuple[Tried, ...]
    created: str
    environment: Environment

    def of(self, setting: Setting) -> Tried:
        return next(tried for tried in self.tried if tried.setting == setting)

    @property
    def measured(self) -> dict[Setting, Figures]:
        """Of every setting whose answers are right."""
        return {
            tried.setting: figures
            for tried in self.tried
            if tried.verdict != "rejected" and (figures := tried.figures) is not None
        }


def combined(rounds: tuple[Round, ...]) -> Figures:
    """The median of the rounds' figures."""
    found = [one.figures for one in rounds]
    return Figures(
        alone_s=statistics.median(figures.alone_s for figures in found),
        crowd_per_s=statistics.median(figures.crowd_per_s for figures in found),
    )
