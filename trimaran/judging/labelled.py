"""The user's own labelled data as a last gate: a candidate may lose no more than a tenth of a point of their metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import FEWEST, digest_of_texts, encoder_of
from trimaran.core.errors import UsageError
from trimaran.core.parity import Outputs, best_span, label_probabilities, spearman, unit
from trimaran.core.spec import Frozen
from trimaran.core.tables import LABEL, SECOND, TEXT, Table, read_table
from trimaran.core.tasks import task as task_of
from trimaran.judging import bootstrap
from trimaran.judging.evidence import CONFIDENCE, RESAMPLES, SEED
from trimaran.runtime.text import Text

Metric = Literal["spearman", "accuracy", "f1", "exact-match"]
METRICS: tuple[Metric, ...] = get_args(Metric)
MOST_LOST_POINTS = 0.1
# Where `_texts` puts the context of a question, whatever the family was trained with.
_CONTEXT = 1
Items = npt.NDArray[Any]


class DataScore(Frozen):
    """Points are hundredths of the metric; the interval is that of the paired change over resampled items."""

    metric: Metric
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

    metric: Metric
    texts: tuple[Text, ...]
    gold: tuple[str, ...]

    @property
    def digest(self) -> str:
        return digest_of_texts((self.metric, *self.texts, *self.gold))

    def score(self, artifact: Artifact, eager: Outputs, candidate: Outputs) -> DataScore:
        """Both sides on the same items; each resample draws the same items for both."""
        items = [_ITEMS[self.metric](self, artifact, side) for side in (eager, candidate)]
        total = _TOTALS[self.metric]
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
    if metric not in METRICS:
        raise UsageError(f"Unknown metric {metric!r}.", hint=f"Known: {', '.join(METRICS)}.")
    known = next(name for name in METRICS if name == metric)
    if task not in _TASKS[known]:
        fitting = [name for name, tasks in _TASKS.items() if task in tasks]
        raise UsageError(
            f"{metric} cannot be taken of {task}.",
            hint=f"For {task}: {', '.join(fitting)}." if fitting else f"{task} has no metric of labelled data yet.",
        )
    table = read_table(path)
    gold = table.column(LABEL, what="labels or scores", place=len(table.columns) - 1)
    if len(gold) < FEWEST:
        raise UsageError(f"{path} has {len(gold)} items; at least {FEWEST} are wanted.", hint="Hundreds are better.")
    if known == "spearman":
        _refuse_words(path, gold)
    elif known in ("accuracy", "f1"):
        gold = _label_names(path, gold, labels)
    return LabelledData(known, _texts(table, task, known), tuple(gold))


def _texts(table: Table, task: str, metric: Metric) -> tuple[Text, ...]:
    firsts = table.column(TEXT, what="texts", place=0)
    paired = metric in ("spearman", "exact-match") or any(name in table.columns for name in SECOND)
    if not paired:
        return tuple(firsts)
    seconds = table.column(SECOND, what="second texts", place=1)
    if task == "embedding":
        return (*firsts, *seconds)
    return tuple((b, a) if task_of(task).asks else (a, b) for a, b in zip(firsts, seconds, strict=True))


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


def _similarities(data: LabelledData, artifact: Artifact, outputs: Outputs) -> Items:
    name = next(iter(outputs))
    gold = np.asarray(data.gold, np.float64)
    if name == "embedding":
        firsts, seconds = np.split(unit(outputs[name]), 2)
        return np.stack([(firsts * seconds).sum(-1), gold], axis=1)
    return np.stack([outputs[name].reshape(len(gold), -1)[:, 0].astype(np.float64), gold], axis=1)


def _labels(data: LabelledData, artifact: Artifact, outputs: Outputs) -> Items:
    """(predicted, gold) as numbers of labels."""
    name = next(iter(outputs))
    best = label_probabilities(name, outputs[name]).argmax(-1)
    numbers = {label: index for index, label in enumerate(artifact.labels)}
    return np.stack([best, np.asarray([numbers[label] for label in data.gold])], axis=1)


def _spans(data: LabelledData, artifact: Artifact, outputs: Outputs) -> Items:
    """1 where the best span's text is the right one, spaces and case apart."""
    encoder = encoder_of(artifact)
    right = []
    for index, (found, text) in enumerate(zip(encoder.encodings(data.texts), data.texts, strict=True)):
        inside = np.asarray([part == _CONTEXT for part in found.sequence_ids])
        size = len(inside)
        start, end = (
            np.where(inside, outputs[name][index][:size].astype(np.float64), -np.inf)
            for name in ("start_logits", "end_logits")
        )
        first, last = best_span(start, end)
        context = text[_CONTEXT]
        said = context[found.offsets[first][0] : found.offsets[last][1]]
        right.append(" ".join(said.lower().split()) == " ".join(data.gold[index].lower().split()))
    return np.asarray(right, np.float64)


def _macro_f1(items: Items) -> float:
    scores = []
    for label in np.unique(items[:, 1]):
        said, true = items[:, 0] == label, items[:, 1] == label
        scores.append(2 * (said & true).sum() / max(1, said.sum() + true.sum()))
    return float(np.mean(scores))


_TASKS: dict[Metric, tuple[str, ...]] = {
    "spearman": ("embedding", "rerank", "text-classification"),
    "accuracy": ("text-classification",),
    "f1": ("text-classification",),
    "exact-match": ("question-answering",),
}
_ITEMS: dict[Metric, Callable[[LabelledData, Artifact, Outputs], Items]] = {
    "spearman": _similarities,
    "accuracy": _labels,
    "f1": _labels,
    "exact-match": _spans,
}
_TOTALS: dict[Metric, Callable[[Items], float]] = {
    "spearman": lambda items: spearman(items[:, 0], items[:, 1]),
    "accuracy": lambda items: float((items[:, 0] == items[:, 1]).mean()),
    "f1": _macro_f1,
    "exact-match": lambda items: float(items.mean()),
}
