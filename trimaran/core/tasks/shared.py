"""Parts that several tasks share: heads, metrics of vectors and of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trimaran.core.distances import (
    NEIGHBOURS,
    Answers,
    Column,
    cosine_distances,
    first_of,
    label_probabilities,
    largest_differences,
    largest_probability_changes,
    probability_changes,
    related_similarities,
    relative_differences,
    same_labels,
    similarity_changes,
)
from trimaran.core.margins import squared_moves
from trimaran.core.metrics import ByText, Metric, spearman_of_pairs
from trimaran.core.spec import ModelRef
from trimaran.core.tasks.task import BATCH_CHANGE, Gate, Head, Limits, Loss, WireTensors, levels

_SMALLEST_PROBABILITY = 1e-30


def logits(output: Any, inputs: Mapping[str, Any], ref: ModelRef) -> Any:
    """Scores of labels, of a whole text or of each token, activated where the labels are independent."""
    return output.logits.sigmoid() if ref.activation == "sigmoid" else output.logits


LOGITS = Head(logits)


def worst_of(rows: ByText) -> ByText:
    """The largest number of each text."""
    return lambda reference, candidate: rows(reference, candidate).reshape(len(first_of(reference)), -1).max(axis=1)


def mean_of(rows: ByText) -> ByText:
    """The mean number of each text."""
    return lambda reference, candidate: rows(reference, candidate).reshape(len(first_of(reference)), -1).mean(axis=1)


# Numbers of any task

MAX_ABS_DIFFERENCE = Metric("max_abs_difference", largest_differences, kind="worst")


def relative_change(names: tuple[str, ...], otherwise: ByText) -> Metric:
    """The change of a task whose callers see no numbers of the graph: by those, where both sides have them."""

    def by_text(reference: Answers, candidate: Answers) -> Column:
        if all(name in side for name in names for side in (reference, candidate)):
            return relative_differences({name: reference[name] for name in names}, candidate)
        return otherwise(reference, candidate)

    return Metric(BATCH_CHANGE, by_text, kind="worst")


RELATIVE_CHANGE = Metric(BATCH_CHANGE, relative_differences, kind="worst")


# One vector a text


def vector_distances(reference: Answers, candidate: Answers) -> Column:
    return cosine_distances(first_of(reference), first_of(candidate))


def vector_similarities(reference: Answers, candidate: Answers) -> Column:
    return related_similarities(first_of(reference), first_of(candidate))


def _similarity_changes(reference: Answers, candidate: Answers) -> Column:
    return similarity_changes(first_of(reference), first_of(candidate))


TAIL_COSINE_DISTANCE = Metric("tail_cosine_distance", vector_distances, kind="tail")


def _foreseen_similarity_changes(reference: Answers, candidate: Answers, texts: int) -> Column:
    """Fewer neighbours count: among few texts even the nearest are far, and the similarity of far ones changes more."""
    neighbours = max(2, round(NEIGHBOURS * len(first_of(reference)) / texts))
    return similarity_changes(first_of(reference), first_of(candidate), min(NEIGHBOURS, neighbours))


TAIL_SIMILARITY_CHANGE = Metric(
    "tail_similarity_change", _similarity_changes, kind="tail", foreseen=_foreseen_similarity_changes
)
MEAN_COSINE_DISTANCE = Metric("mean_cosine_distance", vector_distances)


def distance_limits(kind: str = "cosine") -> dict[str, Limits]:
    """The limits of both metrics of one kind of distance, such as `mean_cosine_distance` and its tail."""
    return {f"mean_{kind}_distance": ("<=", 1.2e-3, 4e-3), f"tail_{kind}_distance": ("<=", 1e-2, 3e-2)}


RANK_OF_SIMILARITIES = Metric(
    "rank_correlation", vector_similarities, kind="pooled", pooled=spearman_of_pairs, at_least=True
)
COSINE_LOSS = Loss("1−cos", vector_distances)


# Labels of a text

LABEL_METRICS = (
    Metric("label_agreement", same_labels, kind="share", at_least=True),
    Metric("mean_probability_change", mean_of(probability_changes)),
    Metric("worst_probability_change", worst_of(probability_changes), kind="worst"),
    Metric("tail_probability_change", largest_probability_changes, kind="tail"),
    MAX_ABS_DIFFERENCE,
)
# A number that is added to all logits changes no answer, so probabilities are compared; their scale is 1.
PROBABILITY_CHANGE = Metric(BATCH_CHANGE, largest_probability_changes, kind="worst")
LABEL_GATES = levels(
    (Gate("label_agreement", ">=", 1.0), Gate("mean_probability_change", "<=", 1e-5)),
    label_agreement=(">=", 0.99, 0.985),
    mean_probability_change=("<=", 0.005, 0.01),
    tail_probability_change=("<=", 0.02, 0.05),
)
MARGIN_LOSS = Loss("(Δ margin)²", squared_moves)


def labels_from_wire(numbers: str, tensors: WireTensors, other: WireTensors) -> Answers:
    """Scores in the order of the labels' names, whatever order the answer has."""
    order = np.argsort(tensors["LABELS"].astype("S"), axis=-1, kind="stable")
    scores = np.take_along_axis(tensors["SCORES"], order, axis=-1)
    # Logits leave the server as probabilities; their logarithms differ from logits by a constant a row.
    return {numbers: logarithms(scores) if numbers == "logits" else scores}


def in_given_order(tensors: WireTensors, indices: str, scores: str) -> Any:
    """Scores that came best first, in the order of what they are scores of: one a row."""
    order = np.argsort(tensors[indices], axis=-1, kind="stable")
    return np.take_along_axis(tensors[scores], order, axis=-1).reshape(-1, 1)


def logarithms(probabilities: Any) -> Any:
    return np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))


def indexed_column() -> Any:
    """A list of indices with scores, as a column of a Parquet file."""
    import pyarrow as pa

    return pa.list_(pa.struct({"index": pa.int32(), "score": pa.float32()}))


def best_labels(answers: Answers) -> Column:
    return np.asarray(label_probabilities(answers).argmax(-1))
