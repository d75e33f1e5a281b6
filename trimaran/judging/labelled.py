"""The user's own labelled data as a last gate: a candidate may lose no more than a tenth of a point of their metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import FEWEST, answer_context, digest_of_texts
from trimaran.core.distances import Outputs
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen
from trimaran.core.tables import LABEL, SECOND, TEXT, Table, read_table
from trimaran.core.tasks import TASKS, Task
from trimaran.judging import bootstrap
from trimaran.judging.evidence import CONFIDENCE, RESAMPLES, SEED
from trimaran.runtime.text import Text

MOST_LOST_POINTS = 0.1


class DataScore(Frozen):
    """Points are hundredths of the metric; the interval is that of the paired change over resampled items."""

    metric: str
    n: int
    eager: float
    value: float
    change_points: float
    low_points: float
    high_points: float

    def figures(self) -> dict[str, float]:
        """As metrics of a quality."""
        return {
            f"data_{self.metric}": self.value,
            f"data_{self.metric}_eager": self.eager,
            f"data_{self.metric}_change_points": self.change_points,
            f"data_{self.metric}_change_low_points": self.low_points,
        }

    def check(self) -> Check:
        return Check(
            name=f"data_{self.metric}_change_low_points",
            observed=self.low_points,
            limit=-MOST_LOST_POINTS,
            comparison=">=",
            detail=f"({self.value:.5g} after {self.eager:.5g} on {self.n} items)",
        )


@dataclass(frozen=True)
class LabelledData:
    """`texts` are what a model runs, `gold` what is right of each item; an item of two texts may be two of them."""

    metric: str
    texts: tuple[Text, ...]
    gold: tuple[str, ...]

    @property
    def digest(self) -> str:
        return digest_of_texts((self.metric, *self.texts, *self.gold))

    def score(self, artifact: Artifact, eager: Outputs, candidate: Outputs) -> DataScore:
        """Both sides on the same items; each resample draws the same items for both."""
        row, context = TASKS[artifact.task], answer_context(artifact)
        metric = row.data_metrics[self.metric]
        answers = [row.judged(context, self.texts, side) for side in (eager, candidate)]
        items = [metric.items(self.gold, side, artifact.labels) for side in answers]
        total = metric.total
        values = [total(side) for side in items]
        low, high = bootstrap.interval(
            lambda drawn: 100 * (total(items[1][drawn]) - total(items[0][drawn])),
            len(self.gold),
            confidence=CONFIDENCE,
            resamples=RESAMPLES,
            seed=SEED,
            one_at_a_time=True,
        )
        return DataScore(
            metric=self.metric,
            n=len(self.gold),
            eager=values[0],
            value=values[1],
            change_points=100 * (values[1] - values[0]),
            low_points=low,
            high_points=high,
        )


@dataclass(frozen=True)
class OnData:
    """Labelled data with eager PyTorch's outputs for it."""

    data: LabelledData
    eager: Outputs


def read_labelled(path: Path, metric: str, *, task: str, labels: Sequence[str]) -> LabelledData:
    """Refuses a metric that the task has no answer for, a file without the columns, and labels the model has not."""
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
        gold = _label_names(path, gold, labels)
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


def _label_names(path: Path, gold: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Labels by name, or by number where no name fits."""
    known = {label.lower(): label for label in labels}
    numbered = {str(index): label for index, label in enumerate(labels)}
    found = [known.get(value.lower(), numbered.get(value)) for value in gold]
    strangers = sorted({value for value, label in zip(gold, found, strict=True) if label is None})
    if strangers:
        raise UsageError(
            f"{path} has labels that the model has not, such as {strangers[0]!r}.",
            hint=f"The model's labels: {', '.join(labels)}, or their numbers from 0.",
        )
    return [label for label in found if label is not None]
