"""Embedding: one vector a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, epsilon_recalls, first_of, neighbour_overlaps, unit
from trimaran.core.metrics import Metric, spearman
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import (
    COSINE_LOSS,
    MAX_ABS_DIFFERENCE,
    MEAN_COSINE_DISTANCE,
    RANK_OF_SIMILARITIES,
    RELATIVE_CHANGE,
    TAIL_COSINE_DISTANCE,
    TAIL_SIMILARITY_CHANGE,
    distance_limits,
    vector_distances,
)
from trimaran.core.tasks.task import FLOAT_NOISE, DataMetric, Gate, Limits, Task, levels, tensor


def _overlaps(reference: Answers, candidate: Answers) -> Column:
    return neighbour_overlaps(first_of(reference), first_of(candidate))


def _recalls(reference: Answers, candidate: Answers) -> Column:
    return epsilon_recalls(first_of(reference), first_of(candidate))


def _similarity_and_gold(gold: Sequence[str], answers: Answers, labels: Sequence[str]) -> Column:
    """First texts and second texts stand one after the other."""
    firsts, seconds = np.split(unit(first_of(answers)), 2)
    return np.stack([(firsts * seconds).sum(-1), np.asarray(gold, np.float64)], axis=1)


def _ask(library: Any, text: Any, *, prompt: str | None = None) -> Any:
    return library.encode([text], prompt_name=prompt, show_progress_bar=False)[0]


LIMITS: dict[str, Limits] = {
    **distance_limits(),
    "tail_similarity_change": ("<=", 0.03, 0.06),
    "epsilon_recall": (">=", 0.99, 0.98),
}

TASK = Task(
    name="embedding",
    describe="one vector a text: pooling and normalisation inside the graph",
    model_class="AutoModel",
    outputs=lambda ref: (tensor("embedding", ref.width or ref.hidden),),
    head=None,
    bare=True,
    pools=True,
    library=Library(
        sentence="SentenceTransformer", ask=_ask, numbers=lambda answer: {"the vector": answer}, cause="pooling"
    ),
    metrics=(
        MEAN_COSINE_DISTANCE,
        Metric("worst_cosine_distance", vector_distances, kind="worst"),
        TAIL_COSINE_DISTANCE,
        TAIL_SIMILARITY_CHANGE,
        Metric(
            "epsilon_recall",
            _recalls,
            at_least=True,
            most=1.0,
            title="ε-recall@10",
            meaning="share of each text's ten nearest that eager has within 0.01 of its own tenth, by its own index or "
            "eager's, whichever is worse",
        ),
        RANK_OF_SIMILARITIES,
        Metric(
            "neighbour_overlap",
            _overlaps,
            at_least=True,
            most=1.0,
            title="top-10 overlap",
            meaning="share of each text's ten nearest that stay the same",
        ),
        MAX_ABS_DIFFERENCE,
    ),
    change=RELATIVE_CHANGE,
    gates=levels(FLOAT_NOISE, **LIMITS),
    distilled=(
        Gate("mean_cosine_distance", "<=", 0.1),
        Gate("tail_cosine_distance", "<=", 0.35),
        Gate("rank_correlation", ">=", 0.95),
    ),
    headline="neighbour_overlap",
    loss=COSINE_LOSS,
    from_wire=lambda numbers, tensors, other: {"embedding": tensors["EMBEDDING"]},
    data_metrics={
        "spearman": DataMetric(_similarity_and_gold, lambda rows: spearman(rows[:, 0], rows[:, 1]), paired=True)
    },
    pairs_apart=True,
    in_graph="layers, pooling, Dense, whitening, cut, unit length",
)
