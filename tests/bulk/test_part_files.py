from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trimaran.bulk.part_files import PartResults, RunShape, files_of, stored, vectors_in
from trimaran.core.choices import PartFormat, VectorDType


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


def test_a_part_without_rows_has_no_file() -> None:
    shape = RunShape(artifact="digest", task="embedding", format="parquet", dtype="fp32", width=8)
    assert files_of(PartResults([], [], np.zeros((0, 8), np.float32), []), shape) == {}


def test_a_vector_of_zeros_survives_int8() -> None:
    numbers, scales = stored(np.zeros((1, 4), np.float32), "int8")
    assert scales is not None
    assert numbers.tolist() == [[0, 0, 0, 0]]
    assert scales.tolist() == [1.0]
