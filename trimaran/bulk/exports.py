"""Writes a run's vectors as the bulk files that Milvus and Elasticsearch import, with the schema of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from trimaran.bulk.part_files import VectorBlock
from trimaran.bulk.vectors import VectorFolder, are_unit
from trimaran.core.choices import ExportTarget
from trimaran.core.errors import UsageError
from trimaran.core.progress import Progress
from trimaran.core.small_vectors import Vectors
from trimaran.core.spec import Frozen
from trimaran.core.store import publish, temporary_sibling

# Elasticsearch refuses requests beyond 100 MB and is fastest with far smaller ones.
REQUEST_BYTES = 10 << 20
_WIDEST: dict[ExportTarget, int] = {"milvus": 32_768, "elasticsearch": 4_096}
_MILVUS_FILE_BYTES = 256 << 20
_LONGEST_ID = 512


class ExportSummary(Frozen):
    target: ExportTarget
    output: Path
    rows: int
    files: tuple[str, ...]


def export(folder: Path, output: Path, *, target: ExportTarget, name: str, progress: Progress) -> ExportSummary:
    """Writes all bulk files and the schema into `output`, which appears whole or not at all."""
    vectors = VectorFolder(folder)
    if vectors.width > _WIDEST[target]:
        raise UsageError(f"{target} takes vectors of up to {_WIDEST[target]:,} numbers; these have {vectors.width:,}.")
    if output.exists():
        raise UsageError(f"{output} exists already.", hint="Give another folder with -o.")
    rows = 0

    def counted_blocks() -> Iterator[VectorBlock]:
        nonlocal rows
        for block in vectors.blocks(verify=True):
            yield block
            rows += len(block.ids)
            step.advance(rows, vectors.count)

    with progress.stage(target) as step, temporary_sibling(output.absolute()) as temporary:
        _WRITERS[target](temporary, name, vectors.width, counted_blocks())
        files = tuple(sorted(path.name for path in temporary.iterdir()))
        publish(temporary, output.absolute())
        step.outcome(f"{rows:,} rows in {len(files) - 1} files")
    return ExportSummary(target=target, output=output.absolute(), rows=rows, files=files)


def _write_milvus(folder: Path, name: str, width: int, blocks: Iterator[VectorBlock]) -> None:
    """Parquet with one column a field: the primary key `id`, and `vector` as a list of 32-bit numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    unit = whole_ids = True
    number, path, writer = 0, folder, None
    for block in blocks:
        unit &= are_unit(block.vectors)
        whole_ids = isinstance(block.ids[0], int)
        ends = np.arange(len(block.ids) + 1, dtype=np.int32) * width
        ids = pa.array(block.ids, pa.int64() if whole_ids else pa.string())
        table = pa.table({"id": ids, "vector": pa.ListArray.from_arrays(ends, block.vectors.ravel())})
        if writer is not None and path.stat().st_size > _MILVUS_FILE_BYTES:
            writer.close()
            number, writer = number + 1, None
        if writer is None:
            path = folder / f"{name}-{number:05}.parquet"
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    id_type = {"type": "INT64"} if whole_ids else {"type": "VARCHAR", "max_length": _LONGEST_ID}
    schema = {
        "collection": name,
        "fields": [
            {"name": "id", **id_type, "is_primary": True, "auto_id": False},
            {"name": "vector", "type": "FLOAT_VECTOR", "dim": width},
        ],
        "index": {"field": "vector", "metric_type": "IP" if unit else "COSINE", "index_type": "AUTOINDEX"},
    }
    (folder / "schema.json").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


def _write_elasticsearch(folder: Path, name: str, width: int, blocks: Iterator[VectorBlock]) -> None:
    """Requests for `_bulk`: an action line and a document line for each vector; a file is one request."""
    if name != name.lower() or name.startswith(("-", "_", "+", ".")) or set(name) & set('\\/*?"<>| ,#:'):
        raise UsageError(f"{name!r} cannot name an Elasticsearch index.", hint="Give a plain lower-case --name.")
    unit, number, entries, size_bytes = True, 0, list[bytes](), 0
    for block in blocks:
        unit &= are_unit(block.vectors)
        for identity, vector in zip(block.ids, block.vectors, strict=True):
            entry = _bulk_entry(name, str(identity), vector)
            if size_bytes + len(entry) > REQUEST_BYTES:
                (folder / f"{name}-{number:05}.ndjson").write_bytes(b"".join(entries))
                number, entries, size_bytes = number + 1, [], 0
            entries.append(entry)
            size_bytes += len(entry)
    (folder / f"{name}-{number:05}.ndjson").write_bytes(b"".join(entries))
    similarity = "dot_product" if unit else "cosine"
    field = {"type": "dense_vector", "dims": width, "index": True, "similarity": similarity}
    mapping = {"mappings": {"properties": {"id": {"type": "keyword"}, "vector": field}}}
    (folder / "mapping.json").write_text(json.dumps(mapping, indent=1) + "\n", encoding="utf-8")


def _bulk_entry(name: str, identity: str, vector: Vectors) -> bytes:
    """An action and a document. Each number has as few digits as give the same 32 bits when it is read back."""
    if len(identity.encode()) > _LONGEST_ID:
        raise UsageError(f"Elasticsearch takes ids of up to {_LONGEST_ID} bytes; one is longer.")
    action = json.dumps({"index": {"_index": name, "_id": identity}})
    numbers = ",".join(np.format_float_positional(value, unique=True, trim="0") for value in vector)
    return f'{action}\n{{"id":{json.dumps(identity)},"vector":[{numbers}]}}\n'.encode()


_WRITERS: dict[ExportTarget, Callable[[Path, str, int, Iterator[VectorBlock]], None]] = {
    "milvus": _write_milvus,
    "elasticsearch": _write_elasticsearch,
}
