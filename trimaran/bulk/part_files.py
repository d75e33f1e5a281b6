"""Writes the results of a chunk as the files of one part, and reads their vectors back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trimaran.bulk.answer_types import answer_type
from trimaran.bulk.chunks import Identity
from trimaran.core.choices import PartFormat, VectorDType
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import VectorPrecision, Vectors, quantized, ranges_from_text, restored, shortened
from trimaran.core.spec import Frozen
from trimaran.runtime.text import Array

Files = dict[str, bytes]
_NUMPY_TYPES: dict[VectorDType, Any] = {"fp32": np.float32, "fp16": np.float16}
# Number types without a scale for each vector -> how `quantize_embeddings` of sentence-transformers calls them.
_SMALL: dict[VectorDType, VectorPrecision] = {
    "calibrated-int8": "int8",
    "calibrated-uint8": "uint8",
    "binary": "binary",
    "ubinary": "ubinary",
}


class RunShape(Frozen):
    """What every part of a run has in common."""

    artifact: str  # digest
    task: str
    format: PartFormat
    dtype: VectorDType
    width: int  # numbers of a vector; 0 where the answers are no vectors
    # The ranges of the dimensions, for calibrated number types.
    ranges: str = Field(default="", exclude_if=lambda value: not value)

    @property
    def stored_width(self) -> int:
        """Numbers that a vector is stored as."""
        return -(-self.width // 8) if self.dtype in ("binary", "ubinary") else self.width

    @property
    def known_ranges(self) -> Vectors | None:
        return ranges_from_text(self.ranges)[:, : self.width] if self.ranges else None


@dataclass(frozen=True)
class PartResults:
    """The results of one chunk, in the order of its rows."""

    rows: Sequence[int]
    ids: Sequence[Identity]
    vectors: Vectors | None
    answers: Sequence[Any]  # empty where vectors are all that a text gets


@dataclass(frozen=True)
class VectorBlock:
    """Vectors read back, as 32-bit numbers whatever they were stored as."""

    rows: npt.NDArray[np.int64]
    ids: list[Identity]
    vectors: Vectors


def refuse_mismatch(shape: RunShape) -> None:
    """Raises UsageError if the format or the number type cannot hold the task's results."""
    if not shape.width and shape.format in ("npy", "faiss"):
        raise UsageError(
            f"{shape.task} answers are no vectors: {shape.format} cannot hold them.",
            hint="Use --format parquet or jsonl.",
        )
    if not shape.width and shape.dtype != "fp32":
        raise UsageError(f"{shape.task} answers are no vectors: --dtype {shape.dtype} does not apply.")
    if shape.dtype.startswith("calibrated") and not shape.ranges:
        raise UsageError(
            f"The artifact has no ranges, which --dtype {shape.dtype} needs.",
            hint="Deploy the model again: ranges are calibrated at export.",
        )
    if shape.format == "faiss" and shape.dtype in _SMALL:
        raise UsageError(f"--format faiss holds float vectors, not {shape.dtype}.", hint="Use --format parquet.")
    if shape.format == "faiss" and shape.dtype == "int8":
        raise UsageError(
            "A Faiss index does not keep our scale for each vector, so it cannot hold int8.",
            hint="Use --dtype fp32 or fp16, or --format parquet and `trimaran index build --type ivfpq`.",
        )


def files_of(part: PartResults, shape: RunShape) -> Files:
    """Suffix to content. A part without rows has no file: its columns would have no types."""
    if not part.rows:
        return {}
    # Calibrated numbers are of the vectors before they are scaled back to unit length.
    if part.vectors is not None and part.vectors.shape[1] > shape.width:
        cut = part.vectors[:, : shape.width]
        part = replace(part, vectors=cut if shape.ranges else shortened(part.vectors, shape.width))
    return _FORMATS[shape.format][0](part, shape)


def vectors_in(folder: Path, names: Sequence[str], shape: RunShape) -> VectorBlock:
    """The vectors of one part, from its files."""
    files = {"".join(Path(name).suffixes): folder / name for name in names}
    return _FORMATS[shape.format][1](files, shape)


def ids_in(folder: Path, names: Sequence[str]) -> list[Identity]:
    """The ids of one part, from its files."""
    for name in names:
        if name.endswith(".parquet"):
            import pyarrow.parquet as pq

            return list(pq.read_table(folder / name, columns=["id"]).column("id").to_pylist())
        if name.endswith(".jsonl"):
            return [record["id"] for record in _records_in(folder / name)]
    return []


def stored(vectors: Vectors, dtype: VectorDType, ranges: Vectors | None = None) -> tuple[Array, Vectors | None]:
    """The numbers as they are stored, and for int8 the scale of each vector: number = stored * scale."""
    if dtype in _SMALL:
        return quantized(vectors, _SMALL[dtype], ranges), None
    if dtype != "int8":
        return vectors.astype(_NUMPY_TYPES[dtype]), None
    scales = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


def _restored(numbers: Array, scales: Array | None, shape: RunShape) -> Vectors:
    if shape.dtype in _SMALL:
        return restored(numbers, _SMALL[shape.dtype], shape.known_ranges, shape.width)
    wide = numbers.astype(np.float32)
    return wide if scales is None else wide * scales[:, None].astype(np.float32)


def _write_parquet(part: PartResults, shape: RunShape) -> Files:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "row": pa.array(part.rows, pa.int64()),
        "id": pa.array(part.ids, pa.int64() if isinstance(part.ids[0], int) else pa.string()),
    }
    if part.vectors is None:
        columns["answer"] = pa.array([_columnar(answer) for answer in part.answers], answer_type(shape.task))
    else:
        numbers, scales = stored(part.vectors, shape.dtype, shape.known_ranges)
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), shape.stored_width)
        if scales is not None:
            columns["scale"] = pa.array(scales)
        if part.answers:
            kind = answer_type(shape.task)
            beside = pa.array([_columnar(answer) for answer in part.answers], kind)
            columns |= dict(zip((field.name for field in kind), beside.flatten(), strict=True))
    one_value = pa.array(np.zeros(len(part.rows), np.int8))
    columns["artifact"] = pa.DictionaryArray.from_arrays(one_value, pa.array([shape.artifact]))
    metadata = {f"trimaran.{key}": str(value) for key, value in shape.model_dump().items()}
    stream = io.BytesIO()
    # Vectors neither compress nor repeat: trying either costs time and gains nothing.
    plain = part.vectors is not None
    pq.write_table(
        pa.table(columns).replace_schema_metadata(metadata),
        stream,
        compression="none" if plain else "zstd",
        use_dictionary=["artifact"] if plain else True,
        write_statistics=["row", "id"] if plain else True,
    )
    return {".parquet": stream.getvalue()}


def _read_parquet(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    import pyarrow.parquet as pq

    table = pq.read_table(files[".parquet"])
    numbers = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    scales = table.column("scale").to_numpy() if "scale" in table.column_names else None
    vectors = _restored(numbers.reshape(-1, shape.stored_width), scales, shape)
    return VectorBlock(table.column("row").to_numpy(), table.column("id").to_pylist(), vectors)


def _write_npy(part: PartResults, shape: RunShape) -> Files:
    assert part.vectors is not None
    numbers, scales = stored(part.vectors, shape.dtype, shape.known_ranges)
    files = {".npy": _npy_bytes(numbers), ".ids.jsonl": _json_lines(_id_records(part), ensure_ascii=True)}
    return files if scales is None else {**files, ".scales.npy": _npy_bytes(scales)}


def _read_npy(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    scales = np.load(files[".scales.npy"]) if ".scales.npy" in files else None
    return _block(_records_in(files[".ids.jsonl"]), _restored(np.load(files[".npy"]), scales, shape))


def _write_faiss(part: PartResults, shape: RunShape) -> Files:
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
    return {
        ".faiss": faiss.serialize_index(index).tobytes(),
        ".ids.jsonl": _json_lines(_id_records(part), ensure_ascii=True),
    }


def _read_faiss(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    import faiss

    mapped: Any = faiss.read_index(str(files[".faiss"]))
    index: Any = faiss.downcast_index(mapped.index)
    vectors = np.asarray(index.reconstruct_n(0, index.ntotal), np.float32)
    return _block(_records_in(files[".ids.jsonl"]), vectors)


def _write_json(part: PartResults, shape: RunShape) -> Files:
    records = _id_records(part)
    if part.vectors is None:
        for record, answer in zip(records, part.answers, strict=True):
            record["answer"] = answer
    else:
        numbers, scales = stored(part.vectors, shape.dtype, shape.known_ranges)
        for index, record in enumerate(records):
            record["vector"] = numbers[index].tolist()
            if scales is not None:
                record["scale"] = float(scales[index])
            if part.answers:
                record.update(part.answers[index])
    return {".jsonl": _json_lines(records, ensure_ascii=False)}


def _read_json(files: dict[str, Path], shape: RunShape) -> VectorBlock:
    records = _records_in(files[".jsonl"])
    numbers = np.asarray([record["vector"] for record in records], np.float32).reshape(-1, shape.stored_width)
    scales = np.asarray([record["scale"] for record in records], np.float32) if "scale" in records[0] else None
    return _block(records, _restored(numbers, scales, shape))


_FORMATS: dict[
    PartFormat,
    tuple[Callable[[PartResults, RunShape], Files], Callable[[dict[str, Path], RunShape], VectorBlock]],
] = {
    "parquet": (_write_parquet, _read_parquet),
    "npy": (_write_npy, _read_npy),
    "faiss": (_write_faiss, _read_faiss),
    "jsonl": (_write_json, _read_json),
}


def _npy_bytes(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _id_records(part: PartResults) -> list[dict[str, Any]]:
    return [{"row": row, "id": identity} for row, identity in zip(part.rows, part.ids, strict=True)]


def _json_lines(records: list[dict[str, Any]], *, ensure_ascii: bool) -> bytes:
    lines = (json.dumps(record, ensure_ascii=ensure_ascii, default=as_list) + "\n" for record in records)
    return "".join(lines).encode("utf-8", "replace")


def _records_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _block(records: list[dict[str, Any]], vectors: Vectors) -> VectorBlock:
    rows = np.asarray([record["row"] for record in records], np.int64)
    return VectorBlock(rows, [record["id"] for record in records], vectors)


def _columnar(answer: Any) -> Any:
    """Arrow takes lists of vectors, not matrices."""
    if isinstance(answer, dict):
        return {key: _columnar(value) for key, value in answer.items()}
    return list(answer) if isinstance(answer, np.ndarray) else answer


def as_list(value: Any) -> Any:
    """Arrays as JSON has them: the `default` of `json.dumps`."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
