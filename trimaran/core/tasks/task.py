"""What is known of a task: its head, its outputs, its metrics and gates, how it is asked and shown.

A task is one row in `core/tasks/<task>.py`, and what travels to the server in `runtime/tasks/<task>.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.core.artifact import Artifact
from trimaran.core.choices import Level
from trimaran.core.distances import Answers, Column, Outputs
from trimaran.core.metrics import ByText, Metric, values_of
from trimaran.core.spec import Dim, DType, ModelRef, TensorSpec
from trimaran.core.tasks.library import Library
from trimaran.runtime.answers import Reader
from trimaran.runtime.label_words import MASK_SCORES
from trimaran.runtime.tasks import served_task
from trimaran.runtime.text import Text, TextEncoder
from trimaran.runtime.wire import ServedTask

LEVELS: tuple[Level, ...] = ("exact", "strict", "balanced")
# One request by input name, as the wire has it.
RequestRow = Mapping[str, str | Sequence[str]]
# The tensors of an answer by output name, as the wire has them.
WireTensors = Mapping[str, npt.NDArray[Any]]
BATCH_CHANGE = "batch_change"
# Enough to prove a share of 0.99 and a tail of 1 % with one text that misses, for each of four lossy candidates.
MOST_GROUPS = 648
# Words of a vocabulary that stand for labels in requests.
_WORDS = 4


@dataclass(frozen=True)
class Gate:
    """A limit on one metric; a candidate that breaks it is rejected with the number."""

    metric: str
    comparison: Literal["<=", ">="]
    limit: float


@dataclass(frozen=True)
class Head:
    """What is left to do with a trained model's output inside the graph. Tensors are torch's."""

    # (the model's output, its inputs by name, model) -> one tensor, or one for each output of the task.
    finish: Callable[[Any, Mapping[str, Any], ModelRef], Any]
    # What else the model is asked for, such as hidden states.
    keywords: Callable[[ModelRef], Mapping[str, bool]] = lambda ref: {}
    # Inputs by name as the model's class wants them.
    prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda inputs: inputs


@dataclass(frozen=True)
class Loss:
    """What the INT8 search makes small: how far each text's answer moved."""

    title: str
    by_text: ByText


@dataclass(frozen=True)
class AnswerContext:
    """How a model reads texts: what is needed to make final answers of a graph's outputs."""

    encoder: TextEncoder
    reader: Reader
    labels: Sequence[str]
    # What the server must know of the model, such as the id of the mask.
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataMetric:
    """A metric of the user's labelled data."""

    # (gold, answers, the model's labels) -> one row for each item.
    items: Callable[[Sequence[str], Answers, Sequence[str]], Column]
    # All rows -> the metric.
    total: Callable[[Column], float]
    # All rows -> whether each item is right; None for scores, which are never just right or wrong.
    right: Callable[[Column], npt.NDArray[np.bool_]] | None = None
    # Whether the metric is the share of right items.
    mean_of_right: bool = False
    # What gold is: a number, one of the model's labels, or a text.
    gold: Literal["number", "label", "text"] = "number"
    # Whether an item is always two texts.
    paired: bool = False


def outputs_as_answers(context: AnswerContext, texts: Sequence[Text], outputs: Outputs) -> Answers:
    return outputs


def plain_requests(texts: Sequence[Text], facts: Mapping[str, Any]) -> list[RequestRow]:
    return [{"TEXT": text} if isinstance(text, str) else {"TEXT": text[0], "TEXT_PAIR": text[1]} for text in texts]


def with_neighbours(texts: Sequence[Text], single: str, many: str, count: int) -> list[RequestRow]:
    """Requests with the first text of each pair, its own second text and those of its neighbours: `count` in all."""
    seconds = [second_text(text) for text in texts]
    return [
        {single: first_text(text), many: [seconds[(index + step) % len(texts)] for step in range(count)]}
        for index, text in enumerate(texts)
    ]


def grouped(texts: Sequence[Text], seconds: Callable[[int, int], str], count: int) -> tuple[Text, ...]:
    """Each text `count` times, with the second text that `seconds(text, turn)` names: an answer needs several rows.

    At most `MOST_GROUPS` texts, evenly spaced: every group costs `count` rows.
    """
    groups = min(MOST_GROUPS, len(texts))
    return tuple(
        (first_text(texts[index]), seconds(index, turn))
        for index in (group * len(texts) // groups for group in range(groups))
        for turn in range(count)
    )


def neighbours_second(texts: Sequence[Text]) -> Callable[[int, int], str]:
    """A text's own second text, and then those of its neighbours."""
    return lambda index, turn: second_text(texts[(index + turn) % len(texts)])


def request_facts(artifact: Artifact) -> dict[str, Any]:
    """What `requests` may know of a model: the mask that it fills, and words for labels where it can score them."""
    mask = artifact.details.get("answers", {}).get("mask_id")
    if mask is None:
        return {"mask_token": ""}
    reader = Reader(str(artifact.directory / "tokenizer.json"))
    scores = any(spec.name == MASK_SCORES for spec in artifact.signature.outputs)
    return {"mask_token": reader.token(mask), "words": tuple(reader.common_words(_WORDS)) if scores else ()}


def first_text(text: Text) -> str:
    return text if isinstance(text, str) else text[0]


def second_text(text: Text) -> str:
    return text if isinstance(text, str) else text[1]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row: everything that is known of a task in one place."""

    name: str
    describe: str

    # The trained model
    # The class of transformers that loads it.
    model_class: str
    # The outputs of one model: its width, its labels.
    outputs: Callable[[ModelRef], tuple[TensorSpec, ...]]
    # None: token vectors are pooled to one vector a text.
    head: Head | None
    # What one row is made of.
    texts: Literal["single", "pair", "either"] = "single"
    # A text, and what is asked of it; models read what is asked first.
    asks: bool = False
    # Needs no head of its own.
    bare: bool = False
    # Token vectors are pooled: its first output is one vector a text, with the pooling of the folder.
    pools: bool = False
    # Its logits have names, which the config tells.
    labelled: bool = False
    # Names of its logits, where they are the same for every model.
    fixed_labels: tuple[str, ...] = ()
    # May be inferred from an architecture.
    automatic: bool = True
    # What the server must know of this model, such as the id of the mask. Raises UsageError where it cannot answer.
    facts: Callable[[ModelRef, Any], Mapping[str, Any]] = lambda ref, tokenizer: {}

    # The proof
    # How the model's own library is asked the same.
    library: Library
    # The same for late-interaction models.
    late_library: Library | None = None
    metrics: tuple[Metric, ...]
    # The worst change of one text's answer between two ways of running the same engine.
    change: Metric
    gates: Mapping[Level, tuple[Gate, ...]]
    # Of a student with fewer layers against its teacher: the level `distilled`. Empty: the task has no such students.
    distilled: tuple[Gate, ...] = ()
    # The metric that a reader looks at first.
    headline: str
    loss: Loss
    # Outputs of the graph that no metric reads. They are large, so they are not collected for judging.
    unjudged: frozenset[str] = frozenset()
    # A graph's outputs for judging texts -> what the metrics compare.
    judged: Callable[[AnswerContext, Sequence[Text], Outputs], Answers] = outputs_as_answers
    # (name of the graph's output, tensors, tensors of the other side) -> what the metrics compare.
    from_wire: Callable[[str, WireTensors, WireTensors], Answers]
    # Texts as a model is asked them: fill-mask hides a word, by the token that the model has for it.
    asked: Callable[[AnswerContext, Sequence[Text]], Sequence[Text]] = lambda context, texts: texts
    # The shipped texts about persons and places judge it too: few of the others have an entity.
    with_names: bool = False
    # Judging texts -> the rows that are judged, where an answer needs several rows.
    judging: Callable[[Sequence[Text]], tuple[Text, ...]] = tuple
    # Metrics of labelled data by name.
    data_metrics: Mapping[str, DataMetric] = field(default_factory=dict)
    # The two texts of a labelled pair are two rows.
    pairs_apart: bool = False

    # Asked and shown
    # Judging texts -> requests of the golden bundle, and at most how many.
    requests: Callable[[Sequence[Text], Mapping[str, Any]], list[RequestRow]] = plain_requests
    most_requests: int = 64
    in_graph: str = ""
    on_server: str = ""

    # In bulk
    # The type of its answers as a column of a Parquet file (pyarrow); None: vectors.
    column: Callable[[], Any] | None = None
    # Options that change the shape of an answer, so that it does not fit that column.
    jsonl_options: frozenset[str] = frozenset()
    # What one row of a collection is, where that differs from `texts`, and how it becomes an item of `served.answer`.
    bulk_texts: Literal["single", "pair", "either", ""] = ""
    bulk_item: Callable[[Any], Any] = lambda text: text
    # Rows a part, where answers are large.
    bulk_part_rows: int | None = None
    # Options that must be given, each with an example of its value in JSON.
    needs_options: Mapping[str, str] = field(default_factory=dict)

    def library_of(self, ref: ModelRef) -> Library:
        return self.late_library if ref.multi_vector and self.late_library else self.library

    @property
    def served(self) -> ServedTask:
        """What travels to the server."""
        return served_task(self.name)

    def fidelity(self, reference: Answers, candidate: Answers) -> dict[str, float]:
        """Every metric of a candidate against the reference."""
        return values_of(self.metrics, reference, candidate)

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


# As served, a text's answer must not depend on the texts that happen to share its batch.
_INVARIANCE = Gate(BATCH_CHANGE, "<=", 1e-5)
FLOAT_NOISE = (Gate("max_abs_difference", "<=", 1e-5),)


# Comparison, strict limit, balanced limit.
Limits = tuple[Literal["<=", ">="], float, float]


def levels(exact: tuple[Gate, ...], **limits: Limits) -> dict[Level, tuple[Gate, ...]]:
    """Gates from the limits of each metric."""
    return {
        "exact": (*exact, _INVARIANCE),
        "strict": (*(Gate(name, sign, strict) for name, (sign, strict, _) in limits.items()), _INVARIANCE),
        "balanced": (*(Gate(name, sign, loose) for name, (sign, _, loose) in limits.items()), _INVARIANCE),
    }


def tensor(name: str, *dims: Dim, dtype: DType = "float32") -> TensorSpec:
    """One output, with the batch as its first axis."""
    return TensorSpec(name=name, dtype=dtype, dims=("batch", *dims))


def own_tokens(encoding: Any, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The rows of a text's own tokens, without what a longer text in the same array has.

    A trial may have run a cut text: the encoding is then cut likewise.
    """
    size = int((~np.isnan(rows.reshape(len(rows), -1)).any(axis=-1)).sum())
    if size < len(encoding.ids):
        encoding.truncate(size)
    return rows[: len(encoding.ids)]


def parsed_rows(column: npt.NDArray[np.object_]) -> list[Any]:
    """One JSON value a row."""
    return [json.loads(value) for value in column.ravel()]
