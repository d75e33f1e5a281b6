"""Small vectors: fewer dimensions, 8-bit numbers, single bits.

The numbers are those of sentence-transformers' `quantize_embeddings`, which embedding services give as well:

    int8, uint8      one of 256 steps between the least and the greatest value of each dimension
    binary, ubinary  one bit a dimension, 1 where the number is positive; eight in a byte

The ranges of the dimensions are calibrated when a model is exported, and kept in its manifest. Vectors that are
quantised at different times can then be compared.
"""

from __future__ import annotations

import base64
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from trimaran.core.distances import EPSILON, NEIGHBOURS, similarities
from trimaran.core.errors import UsageError
from trimaran.runtime.text import Array

VectorPrecision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
PRECISIONS: tuple[VectorPrecision, ...] = get_args(VectorPrecision)
Vectors = npt.NDArray[np.float32]
# The name of the ranges in a manifest's details, and in the parameters of a served model.
RANGES = "vector_ranges"
_UNIT_TOLERANCE = 1e-3
_STEPS = 255
# A search by bits finds this many times the wanted neighbours. Float vectors then choose among them.
RESCORED = 4


def shortened(vectors: Vectors, width: int) -> Vectors:
    """The first numbers of each vector (Matryoshka). Unit vectors are scaled back to unit length.

    Raises UsageError if the vectors are shorter.
    """
    if not 1 <= width <= vectors.shape[-1]:
        raise UsageError(f"The model's vectors have {vectors.shape[-1]} numbers; {width} were asked for.")
    kept = vectors[:, :width]
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    if np.all(np.abs(np.linalg.norm(vectors, axis=1) - 1) < _UNIT_TOLERANCE) and np.all(lengths > 0):
        kept = kept / lengths
    return np.asarray(kept, np.float32)


def small(vectors: Vectors, *, dimensions: int | None, precision: VectorPrecision, ranges: str) -> Array:
    """The vectors with fewer dimensions and smaller numbers, as a caller asked for them.

    8-bit numbers are of the vectors before they are scaled back to unit length: the ranges were calibrated on those.
    Raises UsageError where the model has no ranges, or too few dimensions.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"There is no precision {precision!r}.", hint=f"Known: {', '.join(PRECISIONS)}.")
    kept = vectors if dimensions is None else shortened(vectors, dimensions)
    if precision == "float32":
        return kept
    if precision.endswith("binary"):
        return quantized(kept, precision, None)
    if not ranges:
        raise UsageError(
            f"The model has no ranges for {precision} vectors.",
            hint="Deploy it again: ranges are calibrated at export. Or ask for binary vectors, which need none.",
        )
    return quantized(vectors[:, : kept.shape[1]], precision, ranges_from_text(ranges)[:, : kept.shape[1]])


def quantized(vectors: Vectors, precision: VectorPrecision, ranges: Vectors | None) -> Array:
    """As sentence-transformers' `quantize_embeddings` computes them."""
    if precision.endswith("binary"):
        packed: Array = np.packbits(vectors > 0, axis=-1)
        return packed if precision == "ubinary" else (packed.astype(np.int16) - 128).astype(np.int8)
    assert ranges is not None
    starts, steps = _starts_and_steps(ranges)
    codes: Array = np.clip(np.floor((vectors - starts) / steps), 0, _STEPS)
    return codes.astype(np.uint8) if precision == "uint8" else (codes - 128).astype(np.int8)


def restored(numbers: Array, precision: VectorPrecision, ranges: Vectors | None, width: int) -> Vectors:
    """Float vectors that are near those that were quantised; of bits, 1 and -1."""
    if precision.endswith("binary"):
        packed = numbers if precision == "ubinary" else (numbers.astype(np.int16) + 128)
        bits = np.unpackbits(packed.astype(np.uint8), axis=-1, count=width)
        return np.asarray(bits.astype(np.float32) * 2 - 1, np.float32)
    assert ranges is not None
    starts, steps = _starts_and_steps(ranges)
    codes = numbers.astype(np.float32) + (0 if precision == "uint8" else 128)
    return np.asarray(starts + (codes + np.float32(0.5)) * steps, np.float32)


def ranges_of(vectors: Vectors) -> Vectors:
    """The least and the greatest value of each dimension."""
    return np.asarray(np.stack([vectors.min(axis=0), vectors.max(axis=0)]), np.float32)


def ranges_to_text(ranges: Vectors) -> str:
    """base64 of little-endian floats: all minima, then all maxima."""
    return base64.b64encode(ranges.astype("<f4").tobytes()).decode("ascii")


def ranges_from_text(text: str) -> Vectors:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(2, -1).astype(np.float32)


def recalls(vectors: Vectors, ranges: str) -> dict[str, float]:
    """The ε-recall@10 of small vectors against the whole ones, by what is kept of them.

    Queries and documents are both small, but for bits that are rescored: there both are whole for few candidates.
    """
    width = vectors.shape[1]
    bits = similarities(np.where(vectors > 0, np.float32(1), np.float32(-1)))
    scores = {
        f"{size} dimensions": similarities(shortened(vectors, size)) for size in (width // 2, width // 4) if size >= 8
    }
    if ranges:
        codes = quantized(vectors, "int8", ranges_from_text(ranges))
        scores["int8 or uint8"] = similarities(codes.astype(np.float32))
    scores |= {"binary": bits, "binary, rescored with float": _rescored(vectors, bits)}
    return {name: _recall(vectors, similarity) for name, similarity in scores.items()}


def _recall(vectors: Vectors, scores: Array) -> float:
    """The share of each row's ten nearest by `scores` that are near enough by the vectors."""
    k = min(NEIGHBOURS, len(vectors) - 1)
    if k < 1:
        return 1.0
    true, approximate = similarities(vectors), scores.copy()
    np.fill_diagonal(true, -np.inf)
    np.fill_diagonal(approximate, -np.inf)
    enough = np.sort(true, axis=-1)[:, -k] - EPSILON
    nearest = np.argpartition(-approximate, k - 1, axis=-1)[:, :k]
    return float((np.take_along_axis(true, nearest, axis=-1) >= enough[:, None]).mean())


def _rescored(vectors: Vectors, bits: Array) -> Array:
    """Float similarities of each row to those that are nearest by bits; the others are out of reach."""
    wide = min(RESCORED * NEIGHBOURS + 1, len(vectors))
    near = np.argpartition(-bits, wide - 1, axis=-1)[:, :wide]
    scores = np.full_like(bits, -np.inf)
    np.put_along_axis(scores, near, np.take_along_axis(similarities(vectors), near, axis=-1), axis=-1)
    return scores


def _starts_and_steps(ranges: Vectors) -> tuple[Vectors, Vectors]:
    starts = ranges[0]
    steps = (ranges[1] - starts) / np.float32(_STEPS)
    return starts, np.where(steps == 0, np.float32(1), steps)
