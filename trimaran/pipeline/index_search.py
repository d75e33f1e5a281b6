"""Vectors of texts for a search, from a served model or from an artifact, with the digest of what made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.bulk.search import encoded_by_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.choices import Protocol
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import Vectors
from trimaran.core.store import Store
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.runtime.tasks.hybrid_embedding import COLBERT, SPARSE
from trimaran.serving.client import Client, HybridVectors


class AskedVectors(NamedTuple):
    vectors: Vectors
    # The artifact's digest; empty for a served model that is not ours.
    artifact: str
    # Of a hybrid search: the weights and token vectors of each text.
    answers: Sequence[dict[str, Any]] = ()


def vectors_from_server(
    url: str, name: str, texts: Sequence[str], *, protocol: Protocol, prompt: str | None, hybrid: bool = False
) -> AskedVectors:
    with Client(url, protocol=protocol) as client:
        vectors = client.embed(name, texts, prompt=prompt)
        rows = client.hybrid(name, texts, outputs=[SPARSE, COLBERT], prompt=prompt) if hybrid else ()
        digest = client.model(name).parameters.get("artifact", "")
        return AskedVectors(vectors, digest, [_as_stored(row) for row in rows])


def _as_stored(row: HybridVectors) -> dict[str, Any]:
    """The outputs in the form in which a run stores them."""
    assert row.sparse is not None and row.colbert is not None
    weights = zip(row.sparse.ids, row.sparse.weights, strict=True)
    return {
        SPARSE: [{"token": int(token), "weight": float(weight)} for token, weight in weights],
        COLBERT: {"token_embeddings": row.colbert.vectors},
    }


def vectors_by_name(
    name: str, texts: Sequence[str], *, prompt: str | None, store: Store, repository: Path, hybrid: bool = False
) -> AskedVectors:
    known = find_artifact(name, store=store, repository=repository)
    if hybrid and known.artifact.task != "hybrid-embedding":
        raise UsageError(f"{name} answers {known.artifact.task}: it has one output and no others to score by.")
    how = EncodeOptions(rows=known.rows, ask={} if prompt is None else {"prompt": prompt})
    encoded = encoded_by_artifact(known.artifact, how, texts, hybrid=hybrid)
    return AskedVectors(encoded.vectors, known.artifact.digest, encoded.answers)
