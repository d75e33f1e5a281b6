"""Finds the texts of search results again, in the input files of the run that made the vectors."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from trimaran.bulk.chunks import Identity, chunks_of
from trimaran.bulk.run_folder import BulkManifest, read_manifest
from trimaran.bulk.sources import STDIN
from trimaran.core.errors import TrimaranError
from trimaran.runtime.text import Text


def texts_of(vectors: Path, ids: Collection[Identity]) -> tuple[dict[Identity, Text], str]:
    """The texts by id, and the reason if there are none.

    The inputs are read from their beginning until every id was seen: nothing is kept of them but the vectors.
    """
    try:
        manifest = read_manifest(vectors)
    except TrimaranError as error:
        return {}, error.message
    if reason := _unreadable(manifest):
        return {}, reason
    wanted = set(ids)
    texts: dict[Identity, Text] = {}
    for chunk in chunks_of(manifest.inputs, manifest.settings.columns, rows=manifest.settings.part_rows):
        for identity, text in zip(chunk.ids, chunk.texts, strict=True):
            if identity in wanted:
                texts.setdefault(identity, text)
        if len(texts) == len(wanted):
            break
    return texts, ""


def _unreadable(manifest: BulkManifest) -> str:
    """Why the inputs cannot be read as they were when they were encoded; "" when they can."""
    for source in manifest.inputs:
        if source.path == STDIN:
            return "The texts came from stdin and were not kept."
        path = Path(source.path)
        if not path.is_file():
            return f"{path} is no longer there."
        if path.stat().st_size != source.size_bytes:
            return f"{path} has changed since it was encoded."
    return ""
