"""Runs a freshly made graph on real text before it is published: signature, finite numbers, distance to its parent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.artifact import Artifact, Check, Draft
from trimaran.backends import engine_class
from trimaran.corpus import encoder_of, shipped_texts
from trimaran.equality import worst_difference
from trimaran.errors import ParityError

FEW = 8


def prove_against_parent(parent: Artifact, draft: Draft, folder: Path, *, limit: float | None, threads: int) -> Check:
    """Largest |Δ| to the parent's outputs; with no limit (a lossy precision) only finiteness is asked."""
    before: Any = engine_class(parent.backend)(str(parent.entry_path), threads=threads, options=parent.engine_options)
    after: Any = engine_class(draft.backend)(str(folder / draft.entry), threads=threads, options=draft.engine_options)
    worst, shapes = 0.0, 0
    try:
        for inputs in _batches(parent):
            wanted, found = before.infer(inputs), after.infer(inputs)
            draft.signature.check_outputs(inputs, found)
            for name, array in found.items():
                if not np.isfinite(array).all():
                    raise ParityError(f"{draft.backend} {draft.precision}: {name} is not finite on real text.")
            if limit is not None:
                worst = max(worst, worst_difference(inputs, wanted, found, limit, "its parent"))
            shapes += 1
    finally:
        before.close()
        after.close()
    if limit is None:
        return Check(
            name="finite outputs", observed=shapes, limit=shapes, comparison="==", detail="batches of real text"
        )
    return Check(
        name="max |Δ| to its parent", observed=worst, limit=limit, detail=f"over {shapes} batches of real text"
    )


def _batches(artifact: Artifact) -> Iterator[dict[str, Any]]:
    """A single short text, a padded batch of uneven texts, and the longest shape of the profile."""
    encoder = encoder_of(artifact)
    rows = encoder.rows(shipped_texts("calibration")[:64])
    batch = min(artifact.profile.batch.maximum, FEW)
    yield encoder.batch(rows[:1])
    yield encoder.batch(rows[:batch])
    yield encoder.batch(
        sorted(rows, key=lambda row: len(row.ids))[-min(batch, 2) :], length=artifact.profile.sequence.maximum
    )
