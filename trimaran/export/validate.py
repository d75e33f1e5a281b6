"""Proves an exported graph against eager PyTorch: names, dtypes, axes, shapes, then values, over the profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.artifact import Artifact, Check
from trimaran.errors import ParityError
from trimaran.parity import max_abs_difference, scale_of
from trimaran.runtime.text import SEQUENCE_AXES, unpadded
from trimaran.spec import ShapeProfile, Signature

Arrays = Mapping[str, npt.NDArray[Any]]
Infer = Callable[[Arrays], Arrays]
ATOL = 1e-5


def prove_parity(
    reference: Infer,
    candidate: Infer,
    signature: Signature,
    profile: ShapeProfile,
    sample: Callable[[int, int], Arrays],
    *,
    atol: float = ATOL,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Check:
    """The largest |Δ| over the corners of the profile; raises SignatureError or ParityError at the first breach."""
    worst, corners = 0.0, profile.corners()
    for done, (batch, sequence) in enumerate(corners, start=1):
        inputs = sample(batch, sequence)
        wanted, found = reference(inputs), candidate(inputs)
        signature.check_outputs(inputs, wanted)
        signature.check_outputs(inputs, found)
        worst = max(worst, _worst(inputs, wanted, found, atol, f"eager PyTorch at {batch}x{sequence}"))
        advance(done, len(corners))
    return Check(name="max |Δ| to eager", observed=worst, limit=atol, detail=f"over {len(corners)} shapes")


def prove_padding(
    infer: Infer, parent: Artifact, sample: Callable[..., Arrays], *, atol: float = ATOL
) -> tuple[Check, Check]:
    """A row's answer must not change with more padding, nor with the rows beside it."""
    batch, sequence = min(4, parent.profile.batch.maximum), parent.profile.sequence
    short = max(sequence.minimum, min(sequence.typical, sequence.maximum // 2))
    inputs, wider = sample(batch, short), sample(batch, short, width=sequence.maximum)
    together = infer(inputs)
    padded = _worst(inputs, together, infer(wider), atol, "itself when padded more", wider)
    apart = 0.0
    for index in range(batch):
        row = {name: np.ascontiguousarray(array[index : index + 1]) for name, array in inputs.items()}
        mine = {name: array[index : index + 1] for name, array in together.items()}
        apart = max(apart, _worst(row, mine, infer(row), atol, "itself when alone"))
    return (
        Check(name="max |Δ| by more padding", observed=padded, limit=atol, detail=f"{short} to {sequence.maximum}"),
        Check(name="max |Δ| alone to in a batch", observed=apart, limit=atol, detail=f"{batch} rows"),
    )


def _worst(
    inputs: Arrays, wanted: Arrays, found: Arrays, atol: float, what: str, found_inputs: Arrays | None = None
) -> float:
    """Largest |Δ| at real tokens, relative to values above 1: what is computed at padding is nobody's answer."""
    masks = inputs["attention_mask"], (found_inputs or inputs)["attention_mask"]
    worst = 0.0
    ranked = {name: array for name, array in wanted.items() if np.issubdtype(array.dtype, np.floating)}
    for name in wanted:
        rows = [
            unpadded(side[name], mask, SEQUENCE_AXES.get(name, ()))
            for side, mask in zip((wanted, found), masks, strict=True)
        ]
        scale = scale_of(wanted[name]) if name in ranked else 1.0
        for index, (before, after) in enumerate(zip(*rows, strict=True)):
            if name in ranked:
                delta = max_abs_difference(before, after) / scale
            else:
                scores = unpadded(next(iter(ranked.values())), masks[0], (1,))[index]
                delta = _rank_difference(before, after, scores, atol)
            if not delta <= atol:
                raise ParityError(
                    f"{name} differs from {what} by {delta:.3g}; the limit is {atol:g}.",
                    output=name,
                    observed=delta,
                    limit=atol,
                )
            worst = max(worst, delta)
    return worst


def _rank_difference(wanted: Any, found: Any, scores: Any, atol: float) -> float:
    """0 when two rankings agree wherever the scores tell the ranks apart; ranks closer than float noise may swap."""
    gaps = np.abs(np.diff(scores, axis=-1))
    close = np.full(scores.shape, False)
    close[..., 1:] |= gaps <= 2 * atol
    close[..., :-1] |= gaps <= 2 * atol
    close[..., -1] = True
    return 0.0 if bool(((wanted == found) | close).all()) else float("inf")
