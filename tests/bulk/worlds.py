"""Small collections, runs over them, and what their vectors must be, worked out by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tests.tiny import WORDS, tiny_artifact
from trimaran.bulk.chunks import Chunk, chunks_of
from trimaran.bulk.part_files import PartResults, files_of
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.run import WorkerOptions, encode, settings_for
from trimaran.bulk.run_folder import BulkManifest, PartEntry, read_manifest, write_temporary
from trimaran.bulk.sources import sources_from
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact
from trimaran.core.progress import Progress, SilentProgress

PART_ROWS = 100
Vectors = npt.NDArray[np.float32]


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Texts of the tiny vocabulary, 1 to 12 words each, all lengths mixed."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS[4:], k=generator.randint(1, 12))) for _ in range(count)]


def written(path: Path, texts: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def run(
    artifact: Artifact,
    inputs: list[Path] | list[str],
    output: Path,
    *,
    columns: InputColumns | None = None,
    how: EncodeOptions | None = None,
    work: WorkerOptions | None = None,
    progress: Progress | None = None,
    part_rows: int = PART_ROWS,
    format_: Any = "parquet",
    dtype: Any = "fp32",
    **options: Any,
) -> BulkManifest:
    settings = settings_for(
        artifact,
        columns=columns or InputColumns(),
        how=how or EncodeOptions(rows="padded"),
        part_rows=part_rows,
        format_=format_,
        dtype=dtype,
    )
    sources = sources_from([str(item) for item in inputs], outside=output)
    return encode(
        artifact,
        sources,
        output,
        settings,
        work or WorkerOptions(threads=2),
        progress=progress or SilentProgress(),
        **options,
    )


def table(output: Path) -> pa.Table:
    return pq.read_table(output / "parts").sort_by("row")


def vectors(output: Path) -> Vectors:
    column = table(output).column("vector").combine_chunks()
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def rejects(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "rejects.jsonl").read_text(encoding="utf-8").splitlines()]


def tiny(root: Path, **options: Any) -> Artifact:
    return tiny_artifact(root / "store", **options)


def chunks(*paths: Path | str, rows: int = 1000, **columns: object) -> list[Chunk]:
    return list(chunks_of(sources_from([str(path) for path in paths]), InputColumns.model_validate(columns), rows=rows))


def texts_and_rejects(path: Path, **columns: object) -> tuple[list[object], list[tuple[int, str]]]:
    """The texts, and line and reason of what is none."""
    (chunk,) = chunks(path, **columns)
    return list(chunk.texts), [(reject.line, reject.reason) for reject in chunk.rejects]


def require_same_parts(output: Path, expected: Path, rows: list[int]) -> None:
    """The same files to the byte, which hold exactly these rows."""
    names = sorted(path.name for path in (expected / "parts").iterdir())
    assert sorted(path.name for path in (output / "parts").iterdir()) == names
    for name in names:
        assert (output / "parts" / name).read_bytes() == (expected / "parts" / name).read_bytes()
    assert table(output).column("row").to_pylist() == rows


def with_vectors(finished: Path, folder: Path, vectors: Vectors, *, per_part: int = 4000) -> Path:
    """A finished run whose vectors are these: as many and as wide as an index needs, without encoding a text."""
    manifest = read_manifest(finished)
    shape = manifest.settings.shape.model_copy(update={"width": vectors.shape[1]})
    (folder / "parts").mkdir(parents=True)
    parts = []
    for index, begin in enumerate(range(0, len(vectors), per_part)):
        block = vectors[begin : begin + per_part]
        rows = list(range(begin, begin + len(block)))
        files = write_temporary(folder / "parts", index, files_of(PartResults(rows, rows, block, []), shape))
        for entry in files:
            (folder / "parts" / f".making-{entry.name}").rename(folder / "parts" / entry.name)
        parts.append(
            PartEntry(index=index, first_row=begin, size=len(block), rows=len(block), rejected=0, files=tuple(files))
        )
    settings = manifest.settings.model_copy(update={"shape": shape})
    changed = manifest.model_copy(
        update={"settings": settings, "parts": tuple(parts), "rows_written": len(vectors), "rows_read": len(vectors)}
    )
    (folder / "manifest.json").write_text(changed.model_dump_json(by_alias=True), encoding="utf-8")
    return folder


def clustered(count: int, width: int) -> Vectors:
    """Unit vectors around a few centres, as texts of few topics have."""
    generator = np.random.default_rng(4)
    centres = generator.standard_normal((40, width))
    around = centres[generator.integers(40, size=count)] + 0.6 * generator.standard_normal((count, width))
    return np.asarray(around / np.linalg.norm(around, axis=1, keepdims=True), np.float32)
