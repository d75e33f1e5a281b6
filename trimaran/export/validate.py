"""Proves an exported graph equal to eager PyTorch: names, dtypes, axes, shapes, then values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trimaran.core.artifact import Check, Draft
from trimaran.core.backends import Arrays
from trimaran.core.call_memory import ProofShapes, model_size, rows_that_fit
from trimaran.core.spec import ShapeProfile, Signature
from trimaran.judging.equality import worst_difference

RunGraph = Callable[[Arrays], Arrays]
ATOL = 1e-5
_EQUAL_ROWS = 4


def prove_parity(
    reference: RunGraph,
    candidate: RunGraph,
    signature: Signature,
    profile: ShapeProfile,
    sample: Callable[[int, int], Arrays],
    *,
    atol: float = ATOL,
    advance: Callable[[int, int], None] = lambda done, total: None,
    shapes: ProofShapes | None = None,
) -> Check:
    """The largest |Δ| at the corners of the profile. Raises SignatureError or ParityError at the first failure.

    `shapes` take the place of the corners, where memory allows fewer rows.
    """
    worst, (corners, reduced) = 0.0, shapes or ProofShapes(profile.corners(), "")
    for done, (batch, sequence) in enumerate(corners, start=1):
        inputs = sample(batch, sequence)
        expected, actual = reference(inputs), candidate(inputs)
        signature.check_outputs(inputs, expected)
        signature.check_outputs(inputs, actual)
        worst = max(worst, worst_difference(inputs, expected, actual, atol, "eager PyTorch"))
        advance(done, len(corners))
    detail = "; ".join(filter(None, (f"over {len(corners)} shapes", reduced)))
    return Check(name="max |Δ| to eager", observed=worst, limit=atol, detail=detail)


def prove_equal_lengths(infer: RunGraph, sample: Callable[..., Arrays], sequence: int, *, atol: float = ATOL) -> Check:
    """A row's answer must not change with the rows beside it, if all have the same length and there is no padding."""
    rows = [sample(1, sequence, seed=seed) for seed in range(_EQUAL_ROWS)]
    together = infer({name: np.concatenate([row[name] for row in rows]) for name in rows[0]})
    apart = 0.0
    for index, row in enumerate(rows):
        in_batch = {name: array[index : index + 1] for name, array in together.items()}
        apart = max(apart, worst_difference(row, in_batch, infer(row), atol, "itself when alone"))
    detail = f"{len(rows)} rows of {sequence} tokens"
    return Check(name="max |Δ| alone to in a batch of equal length", observed=apart, limit=atol, detail=detail)


def prove_padding(
    infer: RunGraph, parent: Draft, sample: Callable[..., Arrays], *, atol: float = ATOL, budget: int | None = None
) -> tuple[Check, Check]:
    """A row's answer must not change with more padding, nor with the rows beside it.

    `budget` are the bytes that a call may take: few rows of the longest sequence may fit, or half of it.
    """
    batch, sequence = min(4, parent.profile.batch.maximum), parent.profile.sequence
    width, size = sequence.maximum, model_size(parent.details)
    if budget is not None:
        while width > 2 * sequence.minimum and rows_that_fit(size, width, batch, budget) < min(2, batch):
            width //= 2
        batch = max(1, rows_that_fit(size, width, batch, budget))
    short = max(sequence.minimum, min(sequence.typical, width // 2))
    inputs, wider = sample(batch, short), sample(batch, short, width=width)
    together = infer(inputs)
    padded = worst_difference(inputs, together, infer(wider), atol, "itself when padded more", found_inputs=wider)
    apart = 0.0
    for index in range(batch):
        row = {name: np.ascontiguousarray(array[index : index + 1]) for name, array in inputs.items()}
        in_batch = {name: array[index : index + 1] for name, array in together.items()}
        apart = max(apart, worst_difference(row, in_batch, infer(row), atol, "itself when alone"))
    return (
        Check(name="max |Δ| by more padding", observed=padded, limit=atol, detail=f"{short} to {width}"),
        Check(name="max |Δ| alone to in a batch", observed=apart, limit=atol, detail=f"{batch} rows"),
    )
