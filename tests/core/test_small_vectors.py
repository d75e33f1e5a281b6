"""Small vectors are those of sentence-transformers' `quantize_embeddings`, with ranges that were calibrated once."""

from __future__ import annotations

import numpy as np
import pytest

from trimaran.core import small_vectors
from trimaran.core.errors import UsageError
from trimaran.core.small_vectors import PRECISIONS, VectorPrecision, ranges_of, ranges_to_text, restored, small


def _unit(rows: int, width: int) -> small_vectors.Vectors:
    vectors = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("width", [None, 12])
def test_numbers_are_those_of_quantize_embeddings(precision: VectorPrecision, width: int | None) -> None:
    from sentence_transformers.util import quantize_embeddings

    vectors, ranges = _unit(20, 20), ranges_of(_unit(200, 20))
    found = small(vectors, dimensions=width, precision=precision, ranges=ranges_to_text(ranges))
    size = width or 20
    kept = vectors[:, :size]
    if width and precision == "float32":
        kept = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    wanted = quantize_embeddings(kept, precision=precision, ranges=ranges[:, :size])
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_restored_vectors_have_the_codes_that_they_were_restored_from(precision: VectorPrecision) -> None:
    vectors = _unit(20, 20)
    ranges = ranges_of(vectors)
    codes = small_vectors.quantized(vectors, precision, ranges)
    back = restored(codes, precision, ranges, 20)
    np.testing.assert_array_equal(small_vectors.quantized(back, precision, ranges), codes)


def test_each_kind_of_small_vector_has_its_recall_and_rescoring_helps() -> None:
    # Rows in clusters: neighbours that matter, as texts have them.
    centres = np.repeat(_unit(12, 64), 12, axis=0)
    vectors = np.asarray(centres + 0.5 * _unit(144, 64), np.float32)
    found = small_vectors.recalls(vectors, ranges_to_text(ranges_of(vectors)))
    assert found["int8 or uint8"] > 0.9 and found["binary"] < found["binary, rescored with float"] <= 1
    assert {"32 dimensions", "16 dimensions"} <= set(found)


def test_vectors_without_ranges_or_dimensions_are_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="no ranges for int8") as refused:
        small(_unit(2, 8), dimensions=None, precision="int8", ranges="")
    assert "Deploy it again" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="have 8 numbers; 9 were asked for"):
        small(_unit(2, 8), dimensions=9, precision="float32", ranges="")
