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

_HINT = "`trimaran deploy` proves candidates; --unproven publishes it all the same, and marks it."


def publish_by_hand(
    artifact: Artifact,
    store: Store,
    *,
    repository: Path,
    name: str,
    rows: Rows,
    threads: int,
    separate: bool | None = None,
    unproven: bool = False,
) -> Deployment:
    """Raises QualityError for an artifact that was rejected or never judged, unless it may be `unproven`."""
    if not unproven:
        require_proof(store, artifact, rows)
    deployment = lay_out(
        artifact, repository=repository, name=name, rows=rows, threads=threads, separate=separate, unproven=unproven
    )
    load_where_served(deployment)
    return deployment


def require_proof(store: Store, artifact: Artifact, rows: Rows) -> Quality:
    """The judgement of this artifact that kept all its gates with these rows."""
    judgements = [quality for quality in store.remembered("assess", Quality) if counts_here(quality, artifact)]
    proofs = [quality for quality in judgements if quality.holds]
    if not judgements:
        name = artifact.directory.name
        raise QualityError(f"{name} was never judged against eager PyTorch on such a CPU.", hint=_HINT)
    if not proofs:
        broken = broken_sentence(judgements[0])
        raise QualityError(f"{artifact.directory.name} was judged and rejected. {broken}", hint=_HINT)
    for proof in proofs:
        if rows in ("alone", proof.rows):
            return proof
    raise UsageError(
        f"{artifact.directory.name} was proven with rows {proofs[0].rows}, wanted {rows}.",
        hint=f"Use --rows {proofs[0].rows} or --rows alone.",
    )
