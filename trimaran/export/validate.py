"""Proves an exported graph against eager PyTorch: names, dtypes, axes, shapes, then values, over the profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from trimaran.artifact import Check
from trimaran.errors import ParityError
from trimaran.parity import max_abs_difference
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
        for name in signature.output_names:
            delta = max_abs_difference(wanted[name], found[name])
            if not delta <= atol:
                raise ParityError(
                    f"{name} differs from eager PyTorch by {delta:.3g} at {batch}x{sequence}; the limit is {atol:g}.",
                    output=name,
                    observed=delta,
                    limit=atol,
                    shape=[batch, sequence],
                )
            worst = max(worst, delta)
        advance(done, len(corners))
    return Check(name="max |Δ| to eager", observed=worst, limit=atol, detail=f"over {len(corners)} shapes")
