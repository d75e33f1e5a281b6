from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trimaran.bulk.part_files import PartResults, RunShape, files_of, stored, vectors_in
from trimaran.core.choices import PartFormat, VectorDType
from trimaran.core.small_vectors import VectorPrecision, quantized, ranges_of, ranges_to_text


@pytest.mark.parametrize(
    ("format_", "dtype"), [("parquet", "int8"), ("npy", "int8"), ("faiss", "fp16"), ("jsonl", "int8")]
)
def test_what_is_written_is_read_back(tmp_path: Path, format_: PartFormat, dtype: VectorDType) -> None:
    ids = ["plain", "line\u2028separator", "next\x85line", "日本"]
    vectors = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    shape = RunShape(artifact="digest", task="embedding", format=format_, dtype=dtype, width=8)
    files = files_of(PartResults([3, 5, 6, 9], ids, vectors, []), shape)
    for suffix, data in files.items():
        (tmp_path / f"part-00000{suffix}").write_bytes(data)
    block = vectors_in(tmp_path, [f"part-00000{suffix}" for suffix in files], shape)
    assert block.rows.tolist() == [3, 5, 6, 9]
    assert block.ids == ids
    np.testing.assert_allclose(block.vectors, vectors, atol=0.02)


@pytest.mark.parametrize("format_", ["parquet", "npy", "jsonl"])
@pytest.mark.parametrize("dtype", ["calibrated-int8", "calibrated-uint8", "binary", "ubinary"])
def test_small_vectors_are_stored_as_sentence_transformers_has_them(
    tmp_path: Path, format_: PartFormat, dtype: VectorDType
) -> None:
    """Cut to 12 of 16 dimensions, and read back as the floats that their codes stand for."""
    vectors = np.random.default_rng(0).standard_normal((9, 16)).astype(np.float32)
    ranges = ranges_of(vectors)
    stated = ranges_to_text(ranges) if dtype.startswith("calibrated") else ""
    shape = RunShape(artifact="digest", task="embedding", format=format_, dtype=dtype, width=12, ranges=stated)
    files = files_of(PartResults(list(range(9)), list(range(9)), vectors, []), shape)
    for suffix, data in files.items():
        (tmp_path / f"part-00000{suffix}").write_bytes(data)
    block = vectors_in(tmp_path, [f"part-00000{suffix}" for suffix in files], shape)
    precision: VectorPrecision = dtype.removeprefix("calibrated-")  # type: ignore[assignment]
    wanted = quantized(vectors[:, :12], precision, ranges[:, :12])
    np.testing.assert_array_equal(quantized(block.vectors, precision, ranges[:, :12]), wanted)
    if format_ == "npy":
        stored_numbers = np.load(tmp_path / "part-00000.npy")
        assert stored_numbers.dtype == wanted.dtype and stored_numbers.shape == wanted.shape


def test_a_part_without_rows_has_no_file() -> None:
    shape = RunShape(artifact="digest", task="embedding", format="parquet", dtype="fp32", width=8)
    assert files_of(PartResults([], [], np.zeros((0, 8), np.float32), []), shape) == {}


def test_a_vector_of_zeros_survives_int8() -> None:
    numbers, scales = stored(np.zeros((1, 4), np.float32), "int8")
    assert scales is not None
    assert numbers.tolist() == [[0, 0, 0, 0]]
    assert scales.tolist() == [1.0]
