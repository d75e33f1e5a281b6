"""Embedding: one vector a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trimaran.core.distances import Answers, Column, first_of, neighbour_overlaps, unit
from trimaran.core.metrics import Metric, spearman
from trimaran.core.tasks.library import Library
from trimaran.core.tasks.shared import (
    COSINE_LOSS,
    MAX_ABS_DIFFERENCE,
    MEAN_COSINE_DISTANCE,
    RANK_OF_SIMILARITIES,
    vector_distances,
)
from trimaran.core.tasks.task import FLOAT_NOISE, DataMetric, Task, levels, tensor


def _overlaps(reference: Answers, candidate: Answers) -> Column:
    return neighbour_overlaps(first_of(reference), first_of(candidate))


def _distances_or_none(reference: Answers, candidate: Answers) -> Column:
    """Rounding can take a distance just below zero, which is none."""
    return np.maximum(vector_distances(reference, candidate), 0.0)


def _similarity_and_gold(gold: Sequence[str], answers: Answers, labels: Sequence[str]) -> Column:
    """First texts and second texts stand one after the other."""
    firsts, seconds = np.split(unit(first_of(answers)), 2)
    return np.stack([(firsts * seconds).sum(-1), np.asarray(gold, np.float64)], axis=1)


def _ask(library: Any, text: Any, *, prompt: str | None = None) -> Any:
    return library.encode([text], prompt_name=prompt, show_progress_bar=False)[0]


TASK = Task(
    name="embedding",
    describe="one vector a text: pooling and normalisation inside the graph",
    model_class="AutoModel",
    outputs=lambda ref: (tensor("embedding", ref.width or ref.hidden),),
    head=None,
    bare=True,
    library=Library(
        sentence="SentenceTransformer", ask=_ask, numbers=lambda answer: {"the vector": answer}, cause="pooling"
    ),
    metrics=(
        MEAN_COSINE_DISTANCE,
        Metric("worst_cosine_distance", vector_distances, kind="worst"),
        Metric("tail_cosine_distance", vector_distances, kind="tail"),
        RANK_OF_SIMILARITIES,
        Metric(
            "neighbour_overlap",
            _overlaps,
            title="top-10 overlap",
            meaning="share of each text's ten nearest that stay the same",
        ),
        MAX_ABS_DIFFERENCE,
    ),
    change=Metric("batch_change", _distances_or_none, kind="worst"),
    gates=levels(
        FLOAT_NOISE,
        mean_cosine_distance=("<=", 1.2e-3, 4e-3),
        tail_cosine_distance=("<=", 1e-2, 3e-2),
        rank_correlation=(">=", 0.9995, 0.999),
        neighbour_overlap=(">=", 0.97, 0.94),
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
