"""Vectors of texts for a search, from a served model or from an artifact, with the digest of what made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran.bulk.part_files import Vectors
from trimaran.bulk.search import vectors_by_artifact
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.choices import Protocol
from trimaran.core.store import Store
from trimaran.pipeline.artifact_lookup import find_artifact
from trimaran.serving.client import Client


class AskedVectors(NamedTuple):
    vectors: Vectors
    # The artifact's digest; empty for a served model that is not ours.
    artifact: str


def vectors_from_server(
    url: str, name: str, texts: Sequence[str], *, protocol: Protocol, prompt: str | None
) -> AskedVectors:
    with Client(url, protocol=protocol) as client:
        vectors = client.embed(name, texts, prompt=prompt)
        return AskedVectors(vectors, client.model(name).parameters.get("artifact", ""))


def vectors_by_name(
    name: str, texts: Sequence[str], *, prompt: str | None, store: Store, repository: Path
) -> AskedVectors:
    known = find_artifact(name, store=store, repository=repository)
    how = EncodeOptions(rows=known.rows, ask={} if prompt is None else {"prompt": prompt})
    return AskedVectors(vectors_by_artifact(known.artifact, how, texts), known.artifact.digest)
