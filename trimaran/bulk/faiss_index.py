"""Builds a Faiss index from a run's vectors, and measures its recall against exact search before writing it.

`titles.faiss` is a plain Faiss file, whose ids are the positions of the vectors in the run. `titles.faiss.json` holds
its facts, and `titles.faiss.ids.jsonl` holds the id of each position.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field

from trimaran.bulk.index_choice import LINKS, TRAINED_PER_LIST, IndexChoice, choose_index, code_bytes, lists_for
from trimaran.bulk.vectors import VectorFolder, are_unit
from trimaran.core.choices import IndexKind
from trimaran.core.errors import UnavailableError, ValidationError, install_hint
from trimaran.core.progress import Progress, Step
from trimaran.core.small_vectors import Vectors
from trimaran.core.spec import Frozen
from trimaran.core.store import write_atomically

IndexMetric = Literal["inner-product", "cosine"]
Positions = npt.NDArray[np.int64]
NEIGHBOURS = 10
_QUERIES = 200
_SEED = 0
_TRAINING_PER_LIST = 64
_LEAST_TRAINING = 20_000
# So many exact neighbours are searched for ties with the tenth; scores closer than this are a tie.
_CANDIDATES = 100
_TIE = 1e-6
# The parameter of a search that trades speed for recall, and the values that are tried.
_SEARCH_WIDTHS: dict[IndexKind, tuple[str, tuple[int, ...]]] = {
    "hnsw": ("efSearch", (16, 32, 64, 128, 256, 512)),
    "ivf": ("nprobe", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    "ivfpq": ("nprobe", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    # So many times the wanted neighbours are found by their bits, and float vectors choose among them.
    "binary": ("k_factor_rf", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
}


class IndexFacts(Frozen):
    """What `titles.faiss.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_version: Literal[1] = Field(default=1, alias="schema")
    type: IndexKind
    reason: str  # why this type was chosen
    model: str
    artifact: str  # digest
    vectors: str = ""  # the run's folder, where the inputs are named; older indexes have none
    count: int
    width: int
    metric: IndexMetric
    search: dict[str, int]  # `nprobe` or `efSearch`, as the file keeps it
    recall: float  # share of the true nearest neighbours that the index finds
    neighbours: int
    queries: int  # vectors of the collection that were searched for the recall
    size_bytes: int
    seconds: float


def build(
    folder: Path,
    output: Path,
    *,
    kind: IndexKind | None = None,
    least_recall: float = 0.95,
    memory_bytes: int,
    progress: Progress,
) -> IndexFacts:
    """Builds the index; without `kind`, one is chosen, and refused if it does not reach `least_recall`."""
    faiss = faiss_library()
    begun_s = time.monotonic()
    vectors = VectorFolder(folder)
    choice = (
        IndexChoice(kind=kind, reason=f"{kind} was asked for")
        if kind
        else choose_index(vectors.count, vectors.width, memory_bytes)
    )
    progress.note(f"{choice.kind}: {choice.reason}.")
    own, queries = vectors.sample(_QUERIES, seed=_SEED, verify=True)
    metric: IndexMetric = "inner-product" if are_unit(queries) else "cosine"
    queries = ready_for_index(queries, metric)
    with progress.stage("index") as step:
        index = _empty(faiss, choice.kind, vectors, metric)
        exact, ids = _fill(faiss, index, vectors, metric, own, queries, step)
        step.outcome(f"{choice.kind} of {vectors.count:,} vectors")
    with progress.stage("recall") as step:
        search, recall = _tune_search(faiss, index, choice.kind, queries, exact, least_recall)
        step.outcome(f"{recall:.4f} of the true {NEIGHBOURS} nearest found ({len(own)} queries) {search or ''}".strip())
    if kind is None and recall < least_recall:
        raise ValidationError(
            f"The {choice.kind} index finds {recall:.3f} of the true neighbours; {least_recall} were wanted.",
            hint="Ask for less with --recall, or for another --type.",
            recall=recall,
        )
    facts = IndexFacts(
        type=choice.kind,
        reason=choice.reason,
        model=vectors.manifest.model,
        artifact=vectors.manifest.artifact,
        vectors=str(folder.absolute()),
        count=vectors.count,
        width=vectors.width,
        metric=metric,
        search=search,
        recall=recall,
        neighbours=NEIGHBOURS,
        queries=len(own),
        size_bytes=0,
        seconds=round(time.monotonic() - begun_s, 3),
    )
    return _write(faiss, index, ids, facts, output)


def ready_for_index(vectors: Vectors, metric: IndexMetric) -> Vectors:
    """The vectors as the index compares them: cosine is the inner product of unit vectors."""
    if metric == "inner-product":
        return np.ascontiguousarray(vectors, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def facts_path(index: Path) -> Path:
    return index.with_name(f"{index.name}.json")


def ids_path(index: Path) -> Path:
    return index.with_name(f"{index.name}.ids.jsonl")


def _empty(faiss: Any, kind: IndexKind, vectors: VectorFolder, metric: IndexMetric) -> Any:
    """An index without vectors, trained where its kind needs it."""
    if kind == "binary":
        return _empty_binary(faiss, vectors.width)
    lists = lists_for(vectors.count)
    training = min(vectors.count, max(lists * _TRAINING_PER_LIST, _LEAST_TRAINING))
    # 8 bits need enough vectors to train 256 centroids. `np` skips a training for comparing codes bit by bit.
    bits = max(1, min(8, int(math.log2(max(2, training // TRAINED_PER_LIST)))))
    factory: dict[IndexKind, str] = {
        "flat": "Flat",
        "hnsw": f"HNSW{LINKS},Flat",
        "ivf": f"IVF{lists},Flat",
        "ivfpq": f"IVF{lists},PQ{code_bytes(vectors.width)}x{bits}np",
    }
    index = faiss.index_factory(vectors.width, factory[kind], faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        index.train(ready_for_index(vectors.sample(training, seed=_SEED + 1)[1], metric))
    return index


def _empty_binary(faiss: Any, width: int) -> Any:
    """One bit a dimension, compared by Hamming distance; the nearest are scored again with float vectors."""
    bits = faiss.IndexLSH(width, width, False)
    bits.metric_type = faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexRefineFlat(bits)
    bits.this.disown()
    index.own_fields = True
    return index


@dataclass(frozen=True)
class _ExactNeighbours:
    """The true nearest neighbours of each query.

    Equal texts have equal vectors, so more than ten may be as near as the tenth: any of them is right.
    """

    own: Positions  # of the query itself
    near: list[set[int]]  # positions of all that are as near as the tenth
    least: list[float]  # score of the tenth


def _fill(
    faiss: Any, index: Any, vectors: VectorFolder, metric: IndexMetric, own: Positions, queries: Vectors, step: Step
) -> tuple[_ExactNeighbours, list[Any]]:
    """Adds every vector, and finds the exact neighbours of the queries in the same pass."""
    best = faiss.ResultHeap(nq=len(queries), k=_CANDIDATES, keep_max=True)
    ids: list[Any] = []
    for block in vectors.blocks():
        ready = ready_for_index(block.vectors, metric)
        scores, positions = faiss.knn(queries, ready, min(_CANDIDATES, len(ready)), metric=faiss.METRIC_INNER_PRODUCT)
        best.add_result(scores, positions + len(ids))
        index.add(ready)
        ids.extend(block.ids)
        step.advance(len(ids), vectors.count)
    best.finalize()
    near, least = [], []
    for others in _without_own(own, best.D, best.I):
        least.append(others[:NEIGHBOURS][-1][0] - _TIE if others else 0.0)
        near.append({position for score, position in others if score >= least[-1]})
    return _ExactNeighbours(own, near, least), ids


def _without_own(own: Positions, scores: Any, positions: Positions) -> list[list[tuple[float, int]]]:
    """Score and position of each query's results, best first, without the query itself, which every index finds."""
    return [
        [(float(score), int(position)) for score, position in zip(*row, strict=True) if position not in (mine, -1)]
        for mine, row in zip(own, zip(scores, positions, strict=True), strict=True)
    ]


def _tune_search(
    faiss: Any, index: Any, kind: IndexKind, queries: Vectors, exact: _ExactNeighbours, least_recall: float
) -> tuple[dict[str, int], float]:
    """Widens the search until it reaches the recall. The index keeps the width, and the file with it."""
    # Scores of codes are estimates, so a tie cannot be seen in them.
    true_scores = kind != "ivfpq"
    if kind not in _SEARCH_WIDTHS:
        return {}, _recall(index.search(queries, NEIGHBOURS + 1), exact, true_scores=true_scores)
    name, widths = _SEARCH_WIDTHS[kind]
    if name == "nprobe":
        widths = (*(width for width in widths if width < index.nlist), index.nlist)
    recall = 0.0
    for width in widths:
        faiss.ParameterSpace().set_index_parameter(index, name, width)
        recall = _recall(index.search(queries, NEIGHBOURS + 1), exact, true_scores=true_scores)
        if recall >= least_recall:
            break
    return {name: width}, recall


def _recall(result: tuple[Any, Positions], exact: _ExactNeighbours, *, true_scores: bool) -> float:
    """The mean share of true neighbours among the results of each query."""
    shares = []
    for others, near, least in zip(_without_own(exact.own, *result), exact.near, exact.least, strict=True):
        hits = [position in near or (true_scores and score >= least) for score, position in others[:NEIGHBOURS]]
        if near:
            shares.append(sum(hits) / min(NEIGHBOURS, len(near)))
    return float(np.mean(shares)) if shares else 1.0


def _write(faiss: Any, index: Any, ids: list[Any], facts: IndexFacts, output: Path) -> IndexFacts:
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        faiss.write_index(index, str(temporary))
        sized = facts.model_copy(update={"size_bytes": temporary.stat().st_size})
        write_atomically(ids_path(output), "".join(json.dumps(identity) + "\n" for identity in ids))
        write_atomically(facts_path(output), sized.model_dump_json(by_alias=True, indent=1) + "\n")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)
    return sized


def faiss_library() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UnavailableError(f"An index needs Faiss: {error}.", hint=install_hint("scale")) from error
    return faiss
