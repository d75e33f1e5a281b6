"""Runs a new graph on real text before it is published: signature, finite numbers, difference to its parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.artifact import Artifact, Check, Draft
from trimaran.core.backends import engine_class
from trimaran.core.call_memory import budget_bytes, model_size, rows_that_fit
from trimaran.core.corpus import encoder_of, shipped_texts
from trimaran.core.errors import ParityError
from trimaran.judging.equality import worst_difference

MOST_ROWS = 8


def prove_against_parent(parent: Artifact, draft: Draft, folder: Path, *, limit: float | None, threads: int) -> Check:
    """Check the largest |Δ| to the parent's outputs; without a limit (lossy precisions), only that all are finite."""
    batches = list(_batches(parent))
    # One after the other, so that two large models are never in memory at once.
    before = [] if limit is None else _outputs(parent, parent.entry_path, batches, threads)
    after = _outputs(draft, folder / draft.entry, batches, threads)
    for inputs, outputs in zip(batches, after, strict=True):
        draft.signature.check_outputs(inputs, outputs)
        for name, array in outputs.items():
            if not np.isfinite(array).all():
                raise ParityError(f"{draft.backend} {draft.precision}: {name} is not finite on real text.")
    if limit is None:
        count = len(after)
        return Check(name="finite outputs", observed=count, limit=count, comparison="==", detail="batches of real text")
    runs = zip(batches, before, after, strict=True)
    return Check(
        name="max |Δ| to its parent",
        observed=max(worst_difference(inputs, old, new, limit, "its parent") for inputs, old, new in runs),
        limit=limit,
        detail=f"over {len(after)} batches of real text",
    )


def _outputs(made: Draft, entry: Path, batches: Sequence[Any], threads: int) -> list[dict[str, Any]]:
    engine: Any = engine_class(made.backend)(str(entry), threads=threads, options=made.engine_options)
    try:
        return [engine.infer(inputs) for inputs in batches]
    finally:
        engine.close()


def _batches(artifact: Artifact) -> Iterator[dict[str, Any]]:
    """Yield a single text, a padded batch of uneven texts, and the longest shape of the profile."""
    encoder = encoder_of(artifact)
    rows = encoder.rows(shipped_texts("calibration")[:64])
    batch = min(artifact.profile.batch.maximum, MOST_ROWS)
    yield encoder.batch(rows[:1])
    yield encoder.batch(rows[:batch])
    longest = artifact.profile.sequence.maximum
    fitting = max(1, rows_that_fit(model_size(artifact.details), longest, min(batch, 2), budget_bytes()))
    yield encoder.batch(sorted(rows, key=lambda row: len(row.ids))[-fitting:], length=longest)
