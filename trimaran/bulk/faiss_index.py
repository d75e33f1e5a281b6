"""A Faiss index from a run's vectors, with its recall against exact search measured before it is written.

`titles.faiss` is a plain Faiss file whose ids are places; `titles.faiss.json` says what it is, and
`titles.faiss.ids.jsonl` holds the id of each place.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from trimaran.bulk.index_choice import (
    LINKS,
    TRAINED_PER_LIST,
    IndexChoice,
    IndexKind,
    choose_index,
    code_bytes,
    lists_for,
)
from trimaran.bulk.vectors import VectorFolder, Vectors, are_unit
from trimaran.core.errors import UnavailableError, ValidationError
from trimaran.core.progress import Progress, Step
from trimaran.core.spec import Frozen
from trimaran.core.store import write_atomically

IndexMetric = Literal["inner-product", "cosine"]
Ids = npt.NDArray[np.int64]
NEIGHBOURS = 10
_QUERIES = 200
_SEED = 0
_TRAINED_PER_LIST = 64
# Exact neighbours that are looked at for ties with the tenth, and what still is a tie.
_CANDIDATES = 100
_TIE = 1e-6


class IndexFacts(Frozen):
    """`recall` is the share of the true ten nearest that the index finds, on `queries` vectors of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    type: IndexKind
    reason: str
    model: str
    artifact: str
    count: int
    width: int
    metric: IndexMetric
    search: dict[str, int]
    recall: float
    neighbours: int
    queries: int
    size_bytes: int
    seconds: float


def build(
    folder: Path,
    output: Path,
    *,
    wanted: IndexKind | None = None,
    least_recall: float = 0.95,
    memory_bytes: int,
    progress: Progress,
) -> IndexFacts:
    """Reads the vectors part by part; how widely to search is raised until the recall is reached, and kept."""
    faiss = faiss_library()
    begun_s = time.monotonic()
    vectors = VectorFolder(folder)
    choice = choose_index(vectors.count, vectors.width, memory_bytes, wanted=wanted)
    progress.note(f"{choice.type}: {choice.reason}.")
    places, queries = vectors.sample(_QUERIES, seed=_SEED, verify=True)
    metric: IndexMetric = "inner-product" if are_unit(queries) else "cosine"
    with progress.stage("index") as step:
        index = _empty(faiss, choice, vectors, metric)
        truth, ids = _fill(faiss, index, vectors, metric, places, queries, step)
        step.outcome(f"{choice.type} of {vectors.count:,} vectors")
    with progress.stage("recall") as step:
        search, recall = _tuned(faiss, index, ready_for_index(queries, metric), truth, least_recall)
        step.outcome(
            f"{recall:.4f} of the true {NEIGHBOURS} nearest found ({len(places)} queries) {search or ''}".strip()
        )
    if wanted is None and recall < least_recall:
        raise ValidationError(
            f"The {choice.type} index finds {recall:.3f} of the true neighbours; {least_recall} were wanted.",
            hint="Ask for less with --recall, or for another --type.",
            recall=recall,
        )
    facts = IndexFacts(
        type=choice.type,
        reason=choice.reason,
        model=vectors.manifest.model,
        artifact=vectors.manifest.artifact,
        count=vectors.count,
        width=vectors.width,
        metric=metric,
        search=search,
        recall=recall,
        neighbours=NEIGHBOURS,
        queries=len(places),
        size_bytes=0,
        seconds=round(time.monotonic() - begun_s, 3),
    )
    return _write(faiss, index, ids, facts, output)


def ready_for_index(vectors: Vectors, metric: IndexMetric) -> Vectors:
    """As the index compares them: cosine is the inner product of unit vectors."""
    if metric == "inner-product":
        return np.ascontiguousarray(vectors, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def facts_path(index: Path) -> Path:
    return index.with_name(f"{index.name}.json")


def ids_path(index: Path) -> Path:
    return index.with_name(f"{index.name}.ids.jsonl")


def _empty(faiss: Any, choice: IndexChoice, vectors: VectorFolder, metric: IndexMetric) -> Any:
    makers: dict[IndexKind, Callable[[], Any]] = {
        "flat": lambda: faiss.IndexFlatIP(vectors.width),
        "hnsw": lambda: faiss.IndexHNSWFlat(vectors.width, LINKS, faiss.METRIC_INNER_PRODUCT),
        "ivf": lambda: faiss.index_factory(vectors.width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT),
        "ivfpq": lambda: faiss.index_factory(
            vectors.width, f"IVF{lists},PQ{code_bytes(vectors.width)}x{bits}np", faiss.METRIC_INNER_PRODUCT
        ),
    }
    lists = lists_for(vectors.count)
    size = min(vectors.count, max(lists * _TRAINED_PER_LIST, 20_000))
    # Of 8 bits where there are enough vectors to train 256 centroids; `np` leaves out a training that only makes
    # codes comparable bit by bit, which nobody does here.
    bits = max(1, min(8, int(math.log2(max(2, size // TRAINED_PER_LIST)))))
    index = makers[choice.type]()
    if not index.is_trained:
        index.train(ready_for_index(vectors.sample(size, seed=_SEED + 1)[1], metric))
    return index


@dataclass(frozen=True)
class _Truth:
    """Of each query its own place, the places that are truly near, and the score of the last that counts.

    Equal texts have equal vectors, so more than ten may be as near as the tenth: any of them is right.
    """

    own: Ids
    near: list[set[int]]
    least: list[float]


def _fill(
    faiss: Any, index: Any, vectors: VectorFolder, metric: IndexMetric, own: Ids, queries: Vectors, step: Step
) -> tuple[_Truth, list[Any]]:
    """Adds every vector, and finds the exact neighbours of the queries on the way: the vectors are read once."""
    best = faiss.ResultHeap(nq=len(queries), k=_CANDIDATES, keep_max=True)
    asked = ready_for_index(queries, metric)
    ids: list[Any] = []
    for block in vectors.blocks():
        ready = ready_for_index(block.vectors, metric)
        scores, places = faiss.knn(asked, ready, min(_CANDIDATES, len(ready)), metric=faiss.METRIC_INNER_PRODUCT)
        best.add_result(scores, places + len(ids))
        index.add(ready)
        ids.extend(block.ids)
        step.advance(len(ids), vectors.count)
    best.finalize()
    near, least = [], []
    for mine, scores, places in zip(own, best.D, best.I, strict=True):
        others = [(score, place) for score, place in zip(scores, places, strict=True) if place not in (mine, -1)]
        least.append(float(others[:NEIGHBOURS][-1][0]) - _TIE if others else 0.0)
        near.append({int(place) for score, place in others if score >= least[-1]})
    return _Truth(own, near, least), ids


def _tuned(
    faiss: Any, index: Any, queries: Vectors, truth: _Truth, least_recall: float
) -> tuple[dict[str, int], float]:
    """The narrowest search that reaches the recall, set in the index, where it is kept with the file."""
    if isinstance(index, faiss.IndexHNSW):
        name, steps = "efSearch", [16, 32, 64, 128, 256, 512]
    elif isinstance(index, faiss.IndexIVF):
        name, steps = "nprobe", [width for width in (1, 2, 4, 8, 16, 32, 64, 128, 256) if width < index.nlist]
        steps.append(index.nlist)
    else:
        return {}, _recall(index.search(queries, NEIGHBOURS + 1), truth, true_scores=True)
    true_scores = not isinstance(index, faiss.IndexIVFPQ)
    recall = 0.0
    for width in steps:
        setattr(index.hnsw if name == "efSearch" else index, name, width)
        recall = _recall(index.search(queries, NEIGHBOURS + 1), truth, true_scores=true_scores)
        if recall >= least_recall:
            break
    return {name: width}, recall


def _recall(found: tuple[Any, Ids], truth: _Truth, *, true_scores: bool) -> float:
    """A vector is its own nearest, which every index finds: it does not count."""
    shares = []
    for mine, near, least, scores, places in zip(truth.own, truth.near, truth.least, *found, strict=True):
        others = [(score, int(place)) for score, place in zip(scores, places, strict=True) if place not in (mine, -1)]
        hits = [place in near or (true_scores and score >= least) for score, place in others[:NEIGHBOURS]]
        if near:
            shares.append(sum(hits) / min(NEIGHBOURS, len(near)))
    return float(np.mean(shares)) if shares else 1.0


def _write(faiss: Any, index: Any, ids: list[Any], facts: IndexFacts, output: Path) -> IndexFacts:
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        faiss.write_index(index, str(temporary))
        whole = facts.model_copy(update={"size_bytes": temporary.stat().st_size})
        write_atomically(ids_path(output), "".join(json.dumps(identity) + "\n" for identity in ids))
        write_atomically(facts_path(output), whole.model_dump_json(by_alias=True, indent=1) + "\n")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return whole


def faiss_library() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UnavailableError(
            f"An index wants Faiss: {error}.", hint="pip install 'trimaran[scale]' -c constraints.txt"
        ) from error
    return faiss
