"""The user's own labelled data as a last gate: a candidate may lose no more than a tenth of a point of their metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import Artifact
from trimaran.core.corpus import FEWEST, answer_context, digest_of_texts
from trimaran.core.distances import Column, Outputs
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen
from trimaran.core.tables import LABEL, SECOND, TEXT, Table, read_table
from trimaran.core.tail import fewest_texts
from trimaran.core.tasks import TASKS, Task
from trimaran.core.tasks.task import DataMetric
from trimaran.judging import bootstrap
from trimaran.judging.bounds import ALPHA, items_needed, net_loss_share
from trimaran.judging.gate_check import GateCheck, Verdict
from trimaran.runtime.text import Text

MOST_LOST_POINTS = 0.1
RESAMPLES, SEED = 1000, 11
_MOST_ITEMS = 10_000_000


class DataScore(Frozen):
    """Points are hundredths of the metric. `low_points` is the worst change that the items do not refute."""

    metric: str
    n: int
    eager: float
    value: float
    change_points: float
    low_points: float
    # Items that only eager PyTorch had right, and those that only the candidate has; None for a metric of scores.
    lost: int | None = None
    gained: int | None = None
    # None: the candidate equals eager PyTorch up to float noise, and the change itself decides.
    alpha: float | None = None

    def figures(self) -> dict[str, float]:
        """As metrics of a quality."""
        return {
            f"data_{self.metric}": self.value,
            f"data_{self.metric}_eager": self.eager,
            f"data_{self.metric}_change_points": self.change_points,
            f"data_{self.metric}_change_low_points": self.low_points,
        }

    def check(self) -> GateCheck:
        proven = self.low_points >= -MOST_LOST_POINTS and self.n >= self._fewest
        verdict: Verdict = "proven" if proven else "broken" if self.change_points < -MOST_LOST_POINTS else "not proven"
        counted = f", {self.lost} lost and {self.gained} gained" if self.lost is not None else ""
        return GateCheck(
            name=f"data_{self.metric}_change_low_points",
            observed=self.low_points,
            limit=-MOST_LOST_POINTS,
            comparison=">=",
            detail=f"({self.value:.5g} after {self.eager:.5g} on {self.n} items{counted})",
            bound=self.low_points,
            verdict=verdict,
            n=self.n,
            needs=self._needs() if verdict == "not proven" else None,
            texts="items",
        )

    @property
    def _fewest(self) -> int:
        """Of scores: where no two items change places, no resample of them shows a loss. With so many items, a change
        that one in a hundred of all items would show has been seen.
        """
        return fewest_texts(self.alpha) if self.alpha is not None and self.lost is None else 0

    def _needs(self) -> int | None:
        """If further items are lost and gained as these are; a guess where some are."""
        assert self.alpha is not None
        if self.lost is None:
            spread = (self.change_points - self.low_points) / (self.change_points + MOST_LOST_POINTS)
            return max(self._fewest, math.ceil(self.n * spread**2))
        least = items_needed(MOST_LOST_POINTS / 100, self.alpha)
        needed = max(least, self.n)
        while needed < _MOST_ITEMS:
            lost, gained = (round(count * needed / self.n) for count in (self.lost, self.gained or 0))
            if 100 * net_loss_share(lost, gained, needed, self.alpha) <= MOST_LOST_POINTS:
                return needed
            needed = int(needed * 1.1) + 1
        return None


@dataclass(frozen=True)
class LabelledData:
    """`texts` are what a model runs, `gold` what is right of each item; an item of two texts may be two of them."""

    metric: str
    texts: tuple[Text, ...]
    gold: tuple[str, ...]

    @property
    def digest(self) -> str:
        return digest_of_texts((self.metric, *self.texts, *self.gold))

    def score(
        self, artifact: Artifact, eager: Outputs, candidate: Outputs, *, alpha: float | None = ALPHA
    ) -> DataScore:
        """Both sides on the same items.

        Items are right or wrong: how many were lost and gained has exact bounds, which do not collapse where none is. A
        metric that is no mean of items (macro F1, a correlation) is resampled too, and the worse of both ends counts.
        """
        row, context = TASKS[artifact.task], answer_context(artifact)
        metric = row.data_metrics[self.metric]
        answers = [row.judged(context, self.texts, side) for side in (eager, candidate)]
        items = [metric.items(self.gold, side, artifact.labels) for side in answers]
        values = [metric.total(side) for side in items]
        change = 100 * (values[1] - values[0])
        right = [metric.right(side) for side in items] if metric.right else None
        lost, gained = ((right[0] & ~right[1]).sum(), (right[1] & ~right[0]).sum()) if right else (None, None)
        lows = [change]
        if alpha is not None:
            if lost is not None and gained is not None:
                lows.append(-100 * net_loss_share(int(lost), int(gained), len(self.gold), alpha))
            if not metric.mean_of_right:
                lows.append(self._resampled_low(metric, items, alpha))
        return DataScore(
            metric=self.metric,
            n=len(self.gold),
            eager=values[0],
            value=values[1],
            change_points=change,
            low_points=min(lows),
            lost=None if lost is None else int(lost),
            gained=None if gained is None else int(gained),
            alpha=alpha,
        )

    def _resampled_low(self, metric: DataMetric, items: Sequence[Column], alpha: float) -> float:
        """Each resample draws the same items for both sides."""
        return bootstrap.interval(
            lambda drawn: 100 * (metric.total(items[1][drawn]) - metric.total(items[0][drawn])),
            len(self.gold),
            confidence=1 - 2 * alpha,
            resamples=RESAMPLES,
            seed=SEED,
            one_at_a_time=True,
        )[0]


@dataclass(frozen=True)
class OnData:
    """Labelled data with eager PyTorch's outputs for it."""

    data: LabelledData
    eager: Outputs


def read_labelled(path: Path, metric: str, *, task: str, labels: Sequence[str]) -> LabelledData:
    """Refuses a metric that the task has no answer for, a file without the columns, and unknown labels."""
    known = tuple(dict.fromkeys(known for row in TASKS.values() for known in row.data_metrics))
    if metric not in known:
        raise UsageError(f"Unknown metric {metric!r}.", hint=f"Known: {', '.join(known)}.")
    row = TASKS[task]
    if metric not in row.data_metrics:
        raise UsageError(
            f"{metric} cannot be taken of {task}.",
            hint=f"For {task}: {', '.join(row.data_metrics)}."
            if row.data_metrics
            else f"{task} has no metric of labelled data yet.",
        )
    wanted = row.data_metrics[metric]
    table = read_table(path)
    gold = table.column(LABEL, what="labels or scores", place=len(table.columns) - 1)
    if len(gold) < FEWEST:
        raise UsageError(f"{path} has {len(gold)} items; at least {FEWEST} are wanted.", hint="Hundreds are better.")
    if wanted.gold == "number":
        _refuse_words(path, gold)
    elif wanted.gold == "label":
        gold = label_names(path, gold, labels)
    return LabelledData(metric, _texts(table, row, paired=wanted.paired), tuple(gold))


def _texts(table: Table, row: Task, *, paired: bool) -> tuple[Text, ...]:
    firsts = table.column(TEXT, what="texts", place=0)
    if not paired and not any(name in table.columns for name in SECOND):
        return tuple(firsts)
    seconds = table.column(SECOND, what="second texts", place=1)
    if row.pairs_apart:
        return (*firsts, *seconds)
    return tuple((b, a) if row.asks else (a, b) for a, b in zip(firsts, seconds, strict=True))


def _refuse_words(path: Path, gold: Sequence[str]) -> None:
    for number, value in enumerate(gold, start=1):
        try:
            float(value)
        except ValueError:
            raise UsageError(
                f"{path}, item {number}: a score is a number, found {value!r}.", hint="Put scores into `score`."
            ) from None


def label_names(origin: object, gold: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Labels by name, or by number where no name fits. `origin` is where they come from, for the error message."""
    known = {label.lower(): label for label in labels}
    numbered = {str(index): label for index, label in enumerate(labels)}
    labels_of_gold = [known.get(value.lower(), numbered.get(value)) for value in gold]
    strangers = sorted({value for value, label in zip(gold, labels_of_gold, strict=True) if label is None})
    if strangers:
        raise UsageError(
            f"{origin} has labels that the model does not have, such as {strangers[0]!r}.",
            hint=f"The model's labels: {', '.join(labels)}, or their numbers from 0.",
        )
    return [label for label in labels_of_gold if label is not None]
