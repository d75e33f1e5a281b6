"""Lays an artifact out by hand: with the proof that the store remembers, or marked as unproven."""

from __future__ import annotations

from pathlib import Path

from trimaran.benchmarks.report.choice import broken_sentence
from trimaran.core.artifact import Artifact
from trimaran.core.choices import Rows
from trimaran.core.errors import QualityError, UsageError
from trimaran.core.store import Store
from trimaran.judging.judgement import Quality, counts_here
from trimaran.model_repository.layout import Deployment, lay_out
from trimaran.pipeline.live import load_where_served

# Policies that pad a row even if it is alone in its call.
_PADS_ALONE = ("rounded", "packed")
_HINT = "`trimaran deploy` proves candidates; --unproven publishes it all the same, and marks it."


def publish_by_hand(
    artifact: Artifact,
    store: Store,
    *,
    repository: Path,
    name: str,
    rows: Rows | None,
    threads: int,
    separate: bool | None = None,
    unproven: bool = False,
) -> Deployment:
    """Raises QualityError for an artifact that was rejected or never judged, unless it may be `unproven`.

    `rows` None: as the proof says, and `alone` without one.
    """
    chosen = (rows or "alone") if unproven else rows_of_proof(store, artifact, rows)
    deployment = lay_out(
        artifact, repository=repository, name=name, rows=chosen, threads=threads, separate=separate, unproven=unproven
    )
    load_where_served(deployment)
    return deployment


def rows_of_proof(store: Store, artifact: Artifact, wanted: Rows | None) -> Rows:
    """The wanted rows, or by default those of the judgement of this artifact that kept all its gates.

    Each row alone answers as was judged only where the proof padded no lone row: INT8 answers differ by their padding.
    """
    judgements = [quality for quality in store.remembered("assess", Quality) if counts_here(quality, artifact)]
    proofs = [quality.rows for quality in judgements if quality.holds]
    if not judgements:
        name = artifact.directory.name
        raise QualityError(f"{name} was never judged against eager PyTorch on such a CPU.", hint=_HINT)
    if not proofs:
        broken = broken_sentence(judgements[0])
        raise QualityError(f"{artifact.directory.name} was judged and rejected. {broken}", hint=_HINT)
    if wanted is None or wanted in proofs or (wanted == "alone" and any(rows not in _PADS_ALONE for rows in proofs)):
        return wanted or proofs[0]
    alone = "" if proofs[0] in _PADS_ALONE else " or --rows alone"
    raise UsageError(
        f"{artifact.directory.name} was proven with rows {proofs[0]}, wanted {wanted}.",
        hint=f"Use --rows {proofs[0]}{alone}.",
    )
