"""A chunk's results as the files of one part, and back: Parquet, NumPy, Faiss and JSON lines."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.bulk.answer_types import answer_type
from trimaran.bulk.chunks import Identity
from trimaran.core.errors import UsageError
from trimaran.core.spec import Frozen

PartFormat = Literal["parquet", "npy", "faiss", "jsonl"]
VectorDType = Literal["fp32", "fp16", "int8"]
Array = npt.NDArray[Any]
Vectors = npt.NDArray[np.float32]
_KINDS: dict[VectorDType, Any] = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8}


class RunShape(Frozen):
    """What every part of a run has in common. `width` is 0 where the answers are no vectors."""

    artifact: str
    task: str
    format: PartFormat
    dtype: VectorDType
    width: int


@dataclass(frozen=True)
class PartResults:
    """The results of one chunk, in the order of its rows."""

    rows: Sequence[int]
    ids: Sequence[Identity]
    vectors: Vectors | None
    answers: Sequence[Any]


@dataclass(frozen=True)
class VectorBlock:
    """Vectors read back, as 32-bit numbers whatever they were stored as."""

    rows: npt.NDArray[np.int64]
    ids: list[Identity]
    vectors: Vectors


def refuse_mismatch(shape: RunShape) -> None:
    """Formats and types that cannot hold a task's results are refused before anything is worked out."""
    if not shape.width and shape.format in ("npy", "faiss"):
        raise UsageError(
            f"{shape.task} answers are no vectors: {shape.format} cannot hold them.",
            hint="Use --format parquet or jsonl.",
        )
    if not shape.width and shape.dtype != "fp32":
        raise UsageError(f"{shape.task} answers are no vectors: --dtype {shape.dtype} does not apply.")
    if shape.format == "faiss" and shape.dtype == "int8":
        raise UsageError(
            "A Faiss index does not keep our scale for each vector, so int8 cannot go into it as it is.",
            hint="Use --dtype fp32 or fp16, or --format parquet and `trimaran index build --type ivfpq`.",
        )


def files_of(part: PartResults, shape: RunShape) -> dict[str, bytes]:
    """Suffix to content; none for a part without rows, whose columns would have no types."""
    return {} if not part.rows else _WRITERS[shape.format](part, shape)


def stored(vectors: Vectors, dtype: VectorDType) -> tuple[Array, Vectors | None]:
    """The numbers as they are stored, and for int8 the scale of each vector: number = stored * scale."""
    if dtype != "int8":
        return vectors.astype(_KINDS[dtype]), None
    scales = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def vectors_in(folder: Path, names: Sequence[str], shape: RunShape) -> VectorBlock:
    """The vectors of one part, from its files."""
    return _READERS[shape.format]({"".join(Path(name).suffixes): folder / name for name in names}, shape)


def _parquet(part: PartResults, shape: RunShape) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = len(part.rows)
    whole = isinstance(part.ids[0], int)
    columns: dict[str, Any] = {
        "row": pa.array(part.rows, pa.int64()),
        "id": pa.array(part.ids, pa.int64() if whole else pa.string()),
    }
    if part.vectors is None:
        columns["answer"] = pa.array([_columnar(answer) for answer in part.answers], answer_type(shape.task))
    else:
        numbers, scales = stored(part.vectors, shape.dtype)
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), shape.width)
        if scales is not None:
            columns["scale"] = pa.array(scales)
    columns["artifact"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int8)), pa.array([shape.artifact]))
    metadata = {f"trimaran.{key}": str(value) for key, value in shape.model_dump().items()}
    stream = io.BytesIO()
    # Vectors neither compress nor repeat: tries at both cost time and gain nothing.
    plain = part.vectors is not None
    pq.write_table(
        pa.table(columns).replace_schema_metadata(metadata),
        stream,
        compression="none" if plain else "zstd",
        use_dictionary=["artifact"] if plain else True,
        write_statistics=["row", "id"] if plain else True,
    )
    return stream.getvalue()


def _parquet_files(part: PartResults, shape: RunShape) -> dict[str, bytes]:
    return {".parquet": _parquet(part, shape)}


def _npy_files(part: PartResults, shape: RunShape) -> dict[str, bytes]:
    assert part.vectors is not None
    numbers, scales = stored(part.vectors, shape.dtype)
    files = {".npy": _npy(numbers), ".ids.jsonl": _id_lines(part)}
    return files if scales is None else {**files, ".scales.npy": _npy(scales)}


def _faiss_files(part: PartResults, shape: RunShape) -> dict[str, bytes]:
    """A flat index by inner product, whose ids are the rows."""
    import faiss

    assert part.vectors is not None
    inner = (
        faiss.IndexScalarQuantizer(shape.width, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
        if shape.dtype == "fp16"
        else faiss.IndexFlatIP(shape.width)
    )
    index = faiss.IndexIDMap2(inner)
    index.add_with_ids(np.ascontiguousarray(part.vectors), np.asarray(part.rows, np.int64))
    return {".faiss": faiss.serialize_index(index).tobytes(), ".ids.jsonl": _id_lines(part)}


def _json_files(part: PartResults, shape: RunShape) -> dict[str, bytes]:
    lines: list[dict[str, Any]] = [
        {"row": row, "id": identity} for row, identity in zip(part.rows, part.ids, strict=True)
    ]
    if part.vectors is None:
        for line, answer in zip(lines, part.answers, strict=True):
            line["answer"] = answer
    else:
        numbers, scales = stored(part.vectors, shape.dtype)
        for place, line in enumerate(lines):
            line["vector"] = numbers[place].tolist()
            if scales is not None:
                line["scale"] = float(scales[place])
    text = "".join(json.dumps(line, ensure_ascii=False, default=_listed) + "\n" for line in lines)
    return {".jsonl": text.encode("utf-8", "replace")}


def _read_parquet(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    import pyarrow.parquet as pq

    table = pq.read_table(files[".parquet"])
    numbers = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    scales = table.column("scale").to_numpy() if "scale" in table.column_names else None
    vectors = _restored(numbers.reshape(-1, shape.width), scales)
    return VectorBlock(table.column("row").to_numpy(), table.column("id").to_pylist(), vectors)


def _read_npy(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    scales = np.load(files[".scales.npy"]) if ".scales.npy" in files else None
    rows, ids = _ids_in(files[".ids.jsonl"])
    return VectorBlock(rows, ids, _restored(np.load(files[".npy"]), scales))


def _read_faiss(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    import faiss

    mapped: Any = faiss.read_index(str(files[".faiss"]))
    index: Any = faiss.downcast_index(mapped.index)
    rows, ids = _ids_in(files[".ids.jsonl"])
    return VectorBlock(rows, ids, np.asarray(index.reconstruct_n(0, index.ntotal), np.float32))


def _read_json(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    lines = [json.loads(line) for line in files[".jsonl"].read_text(encoding="utf-8").splitlines()]
    numbers = np.asarray([line["vector"] for line in lines], np.float32).reshape(-1, shape.width)
    scales = np.asarray([line["scale"] for line in lines], np.float32) if lines and "scale" in lines[0] else None
    rows = np.asarray([line["row"] for line in lines], np.int64)
    return VectorBlock(rows, [line["id"] for line in lines], _restored(numbers, scales))


_WRITERS: dict[PartFormat, Callable[[PartResults, RunShape], dict[str, bytes]]] = {
    "parquet": _parquet_files,
    "npy": _npy_files,
    "faiss": _faiss_files,
    "jsonl": _json_files,
}
_READERS: dict[PartFormat, Callable[[dict[str, Path], RunShape], VectorBlock]] = {
    "parquet": _read_parquet,
    "npy": _read_npy,
    "faiss": _read_faiss,
    "jsonl": _read_json,
}


def _restored(numbers: Array, scales: Array | None) -> Vectors:
    wide = numbers.astype(np.float32)
    return wide if scales is None else wide * scales[:, None].astype(np.float32)


def _npy(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _id_lines(part: PartResults) -> bytes:
    pairs = zip(part.rows, part.ids, strict=True)
    return "".join(json.dumps({"row": row, "id": identity}) + "\n" for row, identity in pairs).encode()


def _ids_in(path: Path) -> tuple[npt.NDArray[np.int64], list[Identity]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return np.asarray([line["row"] for line in lines], np.int64), [line["id"] for line in lines]


def _columnar(answer: Any) -> Any:
    """Arrow takes lists of vectors, not matrices."""
    if not isinstance(answer, dict):
        return answer
    return {key: list(value) if isinstance(value, np.ndarray) else value for key, value in answer.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
