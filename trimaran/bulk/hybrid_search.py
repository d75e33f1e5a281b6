"""Scores the nearest texts of an index again by all outputs of a hybrid model: vector, token weights, token vectors.

The index finds candidates by their vectors. Their weights and token vectors are in the Parquet files of the run that it
was built from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.bulk.chunks import Identity
from trimaran.bulk.run_folder import PARTS, read_manifest
from trimaran.bulk.search import Hit
from trimaran.core.errors import UsageError
from trimaran.core.late_interaction import maximum_similarities
from trimaran.runtime.tasks.hybrid_embedding import COLBERT, DENSE, SPARSE

# So many times as many texts are found by their vectors as are shown.
CANDIDATES = 10
# How much each output counts: those of bge-m3's own example.
WEIGHTS = {DENSE: 0.4, SPARSE: 0.2, COLBERT: 0.4}


def rescored(folder: Path, queries: Sequence[Mapping[str, Any]], answers: Sequence[Sequence[Hit]]) -> list[list[Hit]]:
    """The hits of each query by the weighted sum of three scores, best first. `queries` are their own outputs."""
    stored = stored_outputs(folder, {hit.id for hits in answers for hit in hits})
    ranked = []
    for query, hits in zip(queries, answers, strict=True):
        scored = [hit.model_copy(update={"score": _score(query, hit, stored[hit.id])}) for hit in hits]
        ranked.append(sorted(scored, key=lambda hit: -hit.score))
    return ranked


def stored_outputs(folder: Path, ids: Collection[Identity]) -> dict[Identity, Mapping[str, Any]]:
    """The weights and token vectors of these texts. Raises UsageError if the run did not write them."""
    import pyarrow.parquet as pq

    columns, stored = ["id", SPARSE, COLBERT], dict[Identity, Mapping[str, Any]]()
    for entry in (entry for part in read_manifest(folder).parts for entry in part.files):
        path = folder / PARTS / entry.name
        whole = path.suffix == ".parquet" and set(columns) <= set(pq.read_schema(path).names)
        rows = pq.read_table(path, columns=columns, filters=[("id", "in", list(ids))]).to_pylist() if whole else []
        if not whole or any(row[kind] is None for row in rows for kind in (SPARSE, COLBERT)):
            raise UsageError(
                f"{folder} does not hold token weights and token vectors, by which the nearest are scored again.",
                hint="Encode with a hybrid model, --format parquet and all outputs.",
            )
        stored.update({row["id"]: row for row in rows})
    return stored


def _score(query: Mapping[str, Any], hit: Hit, text: Mapping[str, Any]) -> float:
    weights = {entry["token"]: entry["weight"] for entry in text[SPARSE]}
    sparse = sum(entry["weight"] * weights.get(entry["token"], 0.0) for entry in query[SPARSE])
    vectors = [np.asarray(side[COLBERT]["token_embeddings"], np.float32) for side in (query, text)]
    (colbert,) = maximum_similarities(vectors[0], vectors[1:], similarity="meanmaxsim")
    scores = {DENSE: hit.score, SPARSE: sparse, COLBERT: float(colbert)}
    return float(sum(WEIGHTS[kind] * score for kind, score in scores.items()))
