"""What the store holds, and what can be taken out of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact
from trimaran.core.repository import model_folders, versions_of
from trimaran.core.spec import Frozen
from trimaran.core.store import Store


class StoredArtifact(Frozen):
    folder: Path
    # The trained model that it was made from, and the step that made it.
    model: str
    step: str
    size_bytes: int
    # What removing it would free: a file that a repository shares takes no room of its own.
    own_bytes: int
    age_days: float
    # A version of a repository descends from it.
    deployed: bool


def stored_artifacts(store: Store, repositories: Sequence[Path]) -> tuple[StoredArtifact, ...]:
    """By model, the oldest first."""
    kept = _deployed_digests(store, repositories)
    rows = [_stored(artifact, artifact.digest in kept) for artifact in store.artifacts()]
    return tuple(sorted(rows, key=lambda row: (row.model, -row.age_days)))


def prune(
    store: Store, repositories: Sequence[Path], *, older_than_days: float, dry_run: bool
) -> tuple[StoredArtifact, ...]:
    """Removes artifacts that no version of the repositories descends from; returns them.

    Whatever is removed can be made again: a stage that needs it makes it anew.
    """
    removed = tuple(
        row for row in stored_artifacts(store, repositories) if not row.deployed and row.age_days >= older_than_days
    )
    for row in removed if not dry_run else ():
        shutil.rmtree(row.folder)
    return removed


def _deployed_digests(store: Store, repositories: Sequence[Path]) -> set[str]:
    digests: set[str] = set()
    for repository in repositories:
        for model in model_folders(repository):
            for version in versions_of(model):
                if (model / str(version) / MANIFEST).is_file():
                    artifact = load_artifact(model / str(version), verify=False)
                    digests |= {ancestor.digest for ancestor in store.lineage(artifact)}
    return digests


def _stored(artifact: Artifact, deployed: bool) -> StoredArtifact:
    sizes = [path.stat() for path in artifact.directory.rglob("*") if path.is_file()]
    return StoredArtifact(
        folder=artifact.directory,
        model=artifact.name,
        step=artifact.recipe.step,
        size_bytes=sum(size.st_size for size in sizes),
        own_bytes=sum(size.st_size for size in sizes if size.st_nlink == 1),
        age_days=(time.time() - (artifact.directory / MANIFEST).stat().st_mtime) / 86400,
        deployed=deployed,
    )
