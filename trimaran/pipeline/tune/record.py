"""The result of a tuning, as it is stored beside the model and reported."""

from __future__ import annotations

import statistics
from typing import ClassVar, Literal

from trimaran.core.choices import TuneObjective
from trimaran.core.environment import Environment
from trimaran.core.persisted import Persisted
from trimaran.core.spec import Frozen
from trimaran.pipeline.tune.settings import Figures, Setting

TUNING_FILE = "tuning.json"
TuneVerdict = Literal["chosen", "finalist", "stopped", "rejected"]


class TuneRound(Frozen):
    """One measurement of a setting."""

    # Each request of one caller.
    alone_ns: tuple[int, ...]
    # Answers to many callers together, and how long that took.
    crowd_answers: int
    crowd_elapsed_ns: int

    @property
    def figures(self) -> Figures:
        return Figures(
            alone_s=statistics.median(self.alone_ns) / 1e9,
            crowd_per_s=self.crowd_answers / (self.crowd_elapsed_ns / 1e9),
        )


class TriedSetting(Frozen):
    setting: Setting
    rounds: tuple[TuneRound, ...]
    verdict: TuneVerdict
    # Why it was stopped or rejected.
    reason: str = ""

    @property
    def figures(self) -> Figures | None:
        return combined(self.rounds) if self.rounds else None


class Tuning(Persisted):
    """`tuning.json`: every setting that was tried for one version of a model, and why one of them is served."""

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
    # Share of the CPUs that other processes used meanwhile; None where the system does not say.
    others_share: float | None
    present: Setting
    chosen: Setting
    reason: str
    tried: tuple[TriedSetting, ...]
    created: str
    environment: Environment

    def of(self, setting: Setting) -> TriedSetting:
        return next(tried for tried in self.tried if tried.setting == setting)

    @property
    def measured(self) -> dict[Setting, Figures]:
        """Of every setting whose answers are right."""
        return {
            tried.setting: figures
            for tried in self.tried
            if tried.verdict != "rejected" and (figures := tried.figures) is not None
        }


def combined(rounds: tuple[TuneRound, ...]) -> Figures:
    """The median of the rounds' figures."""
    figures = [turn.figures for turn in rounds]
    return Figures(
        alone_s=statistics.median(each.alone_s for each in figures),
        crowd_per_s=statistics.median(each.crowd_per_s for each in figures),
    )
