"""A short search by successive halving: every setting gets a glance, the better half gets twice the time, and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trimaran.core.choices import TuneObjective
from trimaran.core.errors import TrimaranError
from trimaran.core.progress import Step
from trimaran.judging.stats import FEWEST_ROUNDS, Ratio, over_rounds
from trimaran.pipeline.tune.record import TriedSetting, TuneRound, TuneVerdict, combined
from trimaran.pipeline.tune.settings import Figures, Setting, best_first, different, gain

Measure = Callable[[Setting, float], TuneRound]
# What the best of one wave carry on into the next, and how many go into the final rounds.
_CARRIED = 2
_FINALISTS = 4
_FINAL_ROUNDS = 3
# Of the budget: when it is spent, no further setting gets its glance, so that the best are still measured well; and no
# final round begins, so that the best of them can still be confirmed.
_SHARE_OF_WAVES = 0.5
_SHARE_OF_FINALS = 0.8
# Below this a gain is taken for noise, and the present setting stays.
WORTH = 1.03


@dataclass
class Search:
    """The state of a search: call `begin`, then a few `wave`s, then `finals` and `choice`."""

    # How the model is served now.
    present: Setting
    objective: TuneObjective
    measure: Measure
    # Frees what a setting that has lost holds.
    forget: Callable[[Setting], None]
    step: Step
    # No measurement begins after this time.
    budget_s: float
    # The time of a setting's first measurement.
    glance_s: float
    rounds: dict[Setting, list[TuneRound]] = field(default_factory=dict)
    # Settings that change answers or are not served, and those that lost, with the reason.
    rejected: dict[Setting, str] = field(default_factory=dict)
    stopped: dict[Setting, str] = field(default_factory=dict)
    # There was no time for all that was planned.
    cut: bool = False

    def __post_init__(self) -> None:
        self._begun_s = time.monotonic()
        self._planned = 1

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._begun_s

    @property
    def figures(self) -> dict[Setting, Figures]:
        """Of every setting whose answers are right."""
        return {
            setting: combined(tuple(rounds)) for setting, rounds in self.rounds.items() if setting not in self.rejected
        }

    def begin(self) -> None:
        """Measures the present setting first: all others are compared with it, so its failure ends the search."""
        self.rounds[self.present] = [self.measure(self.present, self.glance_s)]

    def wave(self, vary: Callable[[Setting], Iterable[Setting]]) -> None:
        """A glance at what `vary` makes of the best so far."""
        best = self._best()[:_CARRIED]
        fresh = different((new for setting in best for new in vary(setting)), than=self.rounds)
        self._planned += len(fresh)
        self._measure_each(fresh, self.glance_s, within_s=_SHARE_OF_WAVES * self.budget_s)
        kept = self._best()[: max(_CARRIED, len(fresh) // 2)]
        self._stop(kept, "lost at first sight")

    def finals(self) -> list[Setting]:
        """The best few and the present setting in turns, for ever longer; each round halves them. The finalists."""
        kept = self._best()[:_FINALISTS]
        self._stop(kept, "not among the best few")
        seconds = self.glance_s
        for number in range(_FINAL_ROUNDS):
            seconds *= 2
            turn = different([self.present, *kept])
            self._planned += len(turn)
            self._measure_each(turn, seconds, within_s=_SHARE_OF_FINALS * self.budget_s)
            kept = self._best()[: max(2, len(kept) // 2)]
            self._stop(kept, f"lost in final round {number + 1}")
        return kept

    def tried(self, chosen: Setting, finalists: Iterable[Setting]) -> tuple[TriedSetting, ...]:
        """Every setting with what became of it, the best first."""
        last = set(finalists)
        order = [*best_first(self.figures, self.present, self.objective), *self.rejected]
        return tuple(
            TriedSetting(
                setting=setting,
                rounds=tuple(self.rounds.get(setting, ())),
                verdict=self._verdict(setting, chosen, last),
                reason=self.rejected.get(setting) or self.stopped.get(setting, ""),
            )
            for setting in dict.fromkeys(order)
        )

    def _verdict(self, setting: Setting, chosen: Setting, finalists: set[Setting]) -> TuneVerdict:
        if setting in self.rejected:
            return "rejected"
        if setting == chosen:
            return "chosen"
        return "finalist" if setting in finalists or setting == self.present else "stopped"

    def choice(self, finalists: Iterable[Setting]) -> tuple[Setting, str]:
        """The best finalist if fresh rounds confirm it, else the present setting; and why."""
        figures = self.figures
        proven = [setting for setting in finalists if len(self.rounds[setting]) > 1]
        best = best_first(figures, self.present, self.objective, among=different([*proven, self.present]))[0]
        gained = gain(figures[best], figures[self.present], self.objective)
        tried = f"of {len(self.rounds)} settings that were tried"
        if self.cut and not proven:
            return self.present, f"The present setting stays: none {tried} was measured twice in {self.budget_s:g} s."
        tried += f" within the budget of {self.budget_s:g} s" if self.cut else ""
        if best == self.present or gained < WORTH:
            return self.present, f"The present setting stays: none {tried} is {WORTH - 1:.0%} better."
        fresh = self._confirmed(best)
        if fresh is None:
            return self.present, (
                f"The present setting stays: the best {tried} could not be confirmed in {self.budget_s:g} s."
            )
        span = f"{fresh.median:.2f} times ({fresh.low:.2f}–{fresh.high:.2f}) as good in {fresh.rounds} fresh rounds"
        if fresh.low <= 1 or fresh.median < WORTH:
            return self.present, (
                f"The present setting stays: the best {tried} looked {gained - 1:.0%} better, and was {span}."
            )
        figures = self.figures
        before, after = figures[self.present], figures[best]
        return best, (
            f"The best {tried} for {self.objective}: one caller {1e3 * after.alone_s:.2f} ms "
            f"(before {1e3 * before.alone_s:.2f}), many callers {after.crowd_per_s:.0f} answers/s "
            f"(before {before.crowd_per_s:.0f}); {span}."
        )

    def _confirmed(self, best: Setting) -> Ratio | None:
        """The gain in rounds that did not choose it, beside the present setting; None when there is no time for them.

        Whatever looks best of many was also lucky, so the rounds that chose it overstate it.
        """
        gains = []
        for number in range(FEWEST_ROUNDS):
            pair = [self.present, best] if number % 2 else [best, self.present]
            before = {setting: len(self.rounds[setting]) for setting in pair}
            self._planned += len(pair)
            self._measure_each(pair, 2 * self.glance_s, within_s=self.budget_s)
            if any(len(self.rounds[setting]) == before[setting] for setting in pair):
                return None
            figures = {setting: self.rounds[setting][-1].figures for setting in pair}
            gains.append(gain(figures[best], figures[self.present], self.objective))
        return over_rounds(gains)

    def _best(self) -> list[Setting]:
        """Those that are still in the running."""
        figures = self.figures
        running = [setting for setting in figures if setting not in self.stopped]
        return best_first(figures, self.present, self.objective, among=running)

    def _measure_each(self, settings: Iterable[Setting], seconds: float, *, within_s: float) -> None:
        for setting in settings:
            if self.spent_s >= within_s:
                self.cut = True
                return
            done = sum(map(len, self.rounds.values())) + len(self.rejected)
            self.step.advance(done, max(self._planned, done), str(setting))
            try:
                self.rounds.setdefault(setting, []).append(self.measure(setting, seconds))
            except TrimaranError as error:
                if setting == self.present:
                    raise
                self.rejected[setting] = str(error)

    def _stop(self, kept: Iterable[Setting], why: str) -> None:
        going_on = {*kept, self.present}
        for setting in self.rounds:
            if setting not in going_on and setting not in self.stopped and setting not in self.rejected:
                self.stopped[setting] = why
                self.forget(setting)
