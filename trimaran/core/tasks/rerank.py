"""Rerank: scores of documents for a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, largest_number
from trimaran.core.metrics import Metric, spearman, spearman_of_pairs
from trimaran.core.tasks.library import Library, indexed, scores_by_index
from trimaran.core.tasks.shared import LOGITS, MAX_ABS_DIFFERENCE, RELATIVE_CHANGE, in_given_order, indexed_column
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    DataMetric,
    Gate,
    Loss,
    Task,
    grouped,
    levels,
    neighbours_second,
    tensor,
    with_neighbours,
)
from trimaran.core.tasks.text_classification import value_and_gold
from trimaran.runtime.text import Text
from trimaran.runtime.wire import INSTRUCTION

_DOCUMENTS = 4


# Of the largest score: documents that eager PyTorch has nearer together are equally good.
_TIE = 0.01


def _changes(reference: Answers, candidate: Answers) -> Column:
    """Relative to the largest score: some models give probabilities, others logits of any size."""
    delta = np.abs(reference["score"].astype(np.float64) - candidate["score"]) / largest_number(reference["score"])
    return np.asarray(delta.reshape(len(delta), -1).mean(axis=1))


def _by_query(rows: Column) -> Column:
    """Rows of scores as queries x documents. The documents of one query move together, so a query is one witness."""
    size = max(1, min(_DOCUMENTS, len(rows)))
    return np.pad(rows, (0, -len(rows) % size), mode="edge" if len(rows) else "constant").reshape(-1, size)


def _mean_changes(reference: Answers, candidate: Answers) -> Column:
    return np.asarray(_by_query(_changes(reference, candidate)).mean(axis=1))


def _largest_changes(reference: Answers, candidate: Answers) -> Column:
    return np.asarray(_by_query(_changes(reference, candidate)).max(axis=1))


def _judging(texts: Sequence[Text]) -> tuple[Text, ...]:
    """Each query with its own document and those of its neighbours: their order is what a caller gets."""
    return grouped(texts, neighbours_second(texts), _DOCUMENTS)


def _pairs_by_query(reference: Answers, candidate: Answers) -> tuple[Column, Column]:
    """Of each query: how many pairs of its documents eager tells apart, and how many of them are in like order."""
    sides = [side["score"].astype(np.float64).reshape(-1) for side in (reference, candidate)]
    size = min(_DOCUMENTS, len(sides[0]))
    scores = [side[: len(side) // size * size].reshape(-1, size) for side in sides]
    first, second = np.triu_indices(size, 1)
    gaps = [side[:, first] - side[:, second] for side in scores]
    apart = np.abs(gaps[0]) > _TIE * largest_number(reference["score"])
    return apart.sum(axis=1).astype(np.float64), (apart & (gaps[0] * gaps[1] > 0)).sum(axis=1).astype(np.float64)


def _same_order(reference: Answers, candidate: Answers) -> Column:
    apart, alike = _pairs_by_query(reference, candidate)
    return np.asarray(np.where(apart > 0, alike / np.maximum(apart, 1), 1.0))


def _scores(reference: Answers, candidate: Answers) -> Column:
    return np.stack([reference["score"], candidate["score"]], axis=-1).astype(np.float64)


def _ask(library: Any, item: Any, *, prompt: str | None = None, instruction: str | None = None) -> Any:
    options = {"prompt_name": prompt, "prompt": instruction, "show_progress_bar": False}
    return indexed([library.predict([(item[0], document)], **options) for document in item[1]])


TASK = Task(
    name="rerank",
    describe="scores of documents for a query, best first",
    model_class="AutoModelForSequenceClassification",
    outputs=lambda ref: (tensor("score", 1),),
    head=LOGITS,
    texts="pair",
    asks=True,
    labelled=True,
    automatic=False,
    facts=lambda ref, tokenizer: {"activation": ref.activation},
    judging=_judging,
    library=Library(
        sentence="CrossEncoder",
        ask=_ask,
        further_options=({INSTRUCTION: "Find the text that answers the question"},),
        numbers=scores_by_index,
        cause="the activation",
    ),
    metrics=(
        Metric(
            "order_agreement",
            _same_order,
            at_least=True,
            most=1.0,
            counted=lambda reference, candidate: _pairs_by_query(reference, candidate)[0] > 0,
            texts="queries whose documents differ",
            title="same order",
            meaning="share of the pairs of a query's documents, those apart that eager scores alike, in eager's order",
        ),
        Metric("rank_correlation", _scores, kind="pooled", pooled=spearman_of_pairs, at_least=True),
        Metric(
            "mean_score_change",
            _mean_changes,
            texts="queries",
            title="mean |Δscore|",
            meaning="mean change of a score, relative to the largest",
        ),
        Metric(
            "tail_score_change",
            _largest_changes,
            kind="tail",
            texts="queries",
            title="1 % tail of |Δscore|",
            meaning="change of a score, relative to the largest, that in at most 1 % of queries any document exceeds, "
            "with 95 % confidence",
        ),
        MAX_ABS_DIFFERENCE,
    ),
    change=RELATIVE_CHANGE,
    gates=levels(
        FLOAT_NOISE,
        order_agreement=(">=", 0.98, 0.96),
        mean_score_change=("<=", 0.005, 0.01),
        tail_score_change=("<=", 0.02, 0.05),
    ),
    distilled=(Gate("order_agreement", ">=", 0.9), Gate("mean_score_change", "<=", 0.05)),
    headline="order_agreement",
    loss=Loss("|Δ score|", _changes),
    from_wire=lambda numbers, tensors, other: {"score": in_given_order(tensors, "INDICES", "SCORES")},
    data_metrics={"spearman": DataMetric(value_and_gold, lambda rows: spearman(rows[:, 0], rows[:, 1]), paired=True)},
    requests=lambda texts, facts: with_neighbours(texts, "QUERY", "DOCUMENTS", _DOCUMENTS),
    most_requests=32,
    in_graph="the head and its activation",
    on_server="documents in order",
    column=indexed_column,
    bulk_item=lambda pair: (pair[0], [pair[1]]),
)
