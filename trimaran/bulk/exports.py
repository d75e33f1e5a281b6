"""A run's vectors as the bulk files that Milvus and Elasticsearch import, with the schema each of them wants first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trimaran.bulk.part_files import VectorBlock
from trimaran.bulk.vectors import VectorFolder, are_unit
from trimaran.core.errors import UsageError
from trimaran.core.progress import Progress
from trimaran.core.spec import Frozen
from trimaran.core.store import publish, temporary_sibling

ExportTarget = Literal["milvus", "elasticsearch"]
WIDEST: dict[ExportTarget, int] = {"milvus": 32_768, "elasticsearch": 4_096}
# Elasticsearch refuses requests beyond 100 MB and is at its best with far smaller ones.
REQUEST_BYTES = 10 << 20
_MILVUS_BYTES = 256 << 20
_LONGEST_ID = 512


class ExportSummary(Frozen):
    target: ExportTarget
    output: Path
    rows: int
    files: tuple[str, ...]


def export(folder: Path, output: Path, *, target: ExportTarget, name: str, progress: Progress) -> ExportSummary:
    """Writes all bulk files and the schema into `output`, which appears whole or not at all."""
    vectors = VectorFolder(folder)
    if vectors.width > WIDEST[target]:
        raise UsageError(f"{target} takes vectors of up to {WIDEST[target]:,} numbers; these have {vectors.width:,}.")
    if output.exists():
        raise UsageError(f"{output} is there already.", hint="Give another folder with -o.")
    with progress.stage(target) as step, temporary_sibling(output.absolute()) as making:
        rows = 0
        writer = _WRITERS[target](making, vectors, name)
        for block in vectors.blocks(verify=True):
            writer.add(block)
            rows += len(block.ids)
            step.advance(rows, vectors.count)
        writer.close()
        files = tuple(sorted(path.name for path in making.iterdir()))
        publish(making, output.absolute())
        step.outcome(f"{rows:,} rows in {len(files) - 1} files")
    return ExportSummary(target=target, output=output.absolute(), rows=rows, files=files)


class _Milvus:
    """Parquet with one column a field: the primary key `id`, and `vector` as a list of 32-bit numbers."""

    def __init__(self, folder: Path, vectors: VectorFolder, name: str) -> None:
        self._folder, self._vectors, self._name = folder, vectors, name
        self._writer: Any = None
        self._path = folder
        self._number = 0
        self._whole = True
        self._unit = True

    def add(self, block: VectorBlock) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._whole = isinstance(block.ids[0], int)
        self._unit &= are_unit(block.vectors)
        ends = np.arange(len(block.ids) + 1, dtype=np.int32) * self._vectors.width
        table = pa.table(
            {
                "id": pa.array(block.ids, pa.int64() if self._whole else pa.string()),
                "vector": pa.ListArray.from_arrays(pa.array(ends), pa.array(block.vectors.ravel())),
            }
        )
        if self._writer is not None and self._path.stat().st_size > _MILVUS_BYTES:
            self._end_file()
        if self._writer is None:
            self._path = self._folder / f"{self._name}-{self._number:05}.parquet"
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        self._end_file()
        key = {"name": "id", "type": "INT64"} if self._whole else {"name": "id", "type": "VARCHAR", "max_length": 512}
        schema = {
            "collection": self._name,
            "fields": [
                {**key, "is_primary": True, "auto_id": False},
                {"name": "vector", "type": "FLOAT_VECTOR", "dim": self._vectors.width},
            ],
            "index": {"field": "vector", "metric_type": "IP" if self._unit else "COSINE", "index_type": "AUTOINDEX"},
        }
        (self._folder / "schema.json").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer, self._number = None, self._number + 1


class _Elasticsearch:
    """Requests for `_bulk`: an action line and a document line for each vector, each file small enough to be sent."""

    def __init__(self, folder: Path, vectors: VectorFolder, name: str) -> None:
        if name != name.lower() or name.startswith(("-", "_", "+", ".")) or set(name) & set('\\/*?"<>| ,#:'):
            raise UsageError(f"{name!r} cannot name an Elasticsearch index.", hint="Give a plain lower-case --name.")
        self._folder, self._vectors, self._name = folder, vectors, name
        self._lines: list[bytes] = []
        self._size = self._number = 0
        self._unit = True

    def add(self, block: VectorBlock) -> None:
        self._unit &= are_unit(block.vectors)
        for identity, vector in zip(block.ids, block.vectors, strict=True):
            if len(str(identity).encode()) > _LONGEST_ID:
                raise UsageError(f"Elasticsearch takes ids of up to {_LONGEST_ID} bytes; one is longer.")
            request = b"".join(self._request(identity, vector))
            if self._size + len(request) > REQUEST_BYTES:
                self._end_file()
            self._lines.append(request)
            self._size += len(request)

    def close(self) -> None:
        self._end_file()
        field = {
            "type": "dense_vector",
            "dims": self._vectors.width,
            "index": True,
            "similarity": "dot_product" if self._unit else "cosine",
        }
        mapping = {"mappings": {"properties": {"id": {"type": "keyword"}, "vector": field}}}
        (self._folder / "mapping.json").write_text(json.dumps(mapping, indent=1) + "\n", encoding="utf-8")

    def _request(self, identity: int | str, vector: Any) -> Iterator[bytes]:
        """Numbers as short as they can be and still be read back as the same 32 bits."""
        action = {"index": {"_index": self._name, "_id": str(identity)}}
        numbers = ",".join(np.format_float_positional(value, unique=True, trim="0") for value in vector)
        yield json.dumps(action).encode() + b"\n"
        yield f'{{"id":{json.dumps(str(identity))},"vector":[{numbers}]}}\n'.encode()

    def _end_file(self) -> None:
        if self._lines:
            (self._folder / f"{self._name}-{self._number:05}.ndjson").write_bytes(b"".join(self._lines))
            self._lines, self._size, self._number = [], 0, self._number + 1


_WRITERS: dict[ExportTarget, Callable[[Path, VectorFolder, str], Any]] = {
    "milvus": _Milvus,
    "elasticsearch": _Elasticsearch,
}
