"""Rerank: scores of documents for a query."""

from __future__ import annotations

import numpy as np

from trimaran.core.distances import Answers, Column
from trimaran.core.metrics import Metric, spearman, spearman_of_pairs
from trimaran.core.tasks.library import Library, indexed, scores_by_index
from trimaran.core.tasks.shared import LARGEST_CHANGE, LOGITS, MAX_ABS_DIFFERENCE, in_given_order, indexed_column
from trimaran.core.tasks.task import (
    FLOAT_NOISE,
    DataMetric,
    Loss,
    Task,
    levels,
    tensor,
    with_neighbours,
)
from trimaran.core.tasks.text_classification import value_and_gold

_DOCUMENTS = 4


def _changes(reference: Answers, candidate: Answers) -> Column:
    delta = np.abs(reference["score"].astype(np.float64) - candidate["score"])
    return np.asarray(delta.reshape(len(delta), -1).mean(axis=1))


def _scores(reference: Answers, candidate: Answers) -> Column:
    return np.stack([reference["score"], candidate["score"]], axis=-1).astype(np.float64)


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
    library=Library(
        sentence="CrossEncoder",
        ask=lambda library, item: indexed(
            [library.predict([(item[0], document)], show_progress_bar=False) for document in item[1]]
        ),
        numbers=scores_by_index,
        cause="the activation",
    ),
    metrics=(
        Metric("rank_correlation", _scores, kind="pooled", pooled=spearman_of_pairs),
        Metric("mean_score_change", _changes, title="mean |Δscore|", meaning="mean change of a score"),
        MAX_ABS_DIFFERENCE,
    ),
    change=LARGEST_CHANGE,
    gates=levels(FLOAT_NOISE, rank_correlation=(">=", 0.9995, 0.999), mean_score_change=("<=", 0.005, 0.01)),
    headline="rank_correlation",
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
