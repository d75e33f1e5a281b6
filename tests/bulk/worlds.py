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
from trimaran.bulk.readers import InputColumns
from trimaran.bulk.run import WorkerOptions, encode, settings_for
from trimaran.bulk.run_folder import BulkManifest
from trimaran.bulk.sources import sources_from
from trimaran.bulk.worker import EncodeOptions
from trimaran.core.artifact import Artifact
from trimaran.core.progress import Progress, SilentProgress

PART_ROWS = 100


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


def vectors(output: Path) -> npt.NDArray[np.float32]:
    found = table(output).column("vector").combine_chunks()
    return np.asarray(found.flatten().to_numpy(zero_copy_only=False)).reshape(len(found), -1)


def rejects(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "rejects.jsonl").read_text(encoding="utf-8").splitlines()]


def tiny(root: Path, **options: Any) -> Artifact:
    return tiny_artifact(root / "store", **options)
