"""Finds the artifact that a person names, and how its rows were proven to run together."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact
from trimaran.core.choices import Rows
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.digests import require_undamaged
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.proven_here import require_proof_here
from trimaran.core.serving_json import SERVING_FILE, read_serving
from trimaran.core.store import Store, link_or_copy, publish, temporary_sibling
from trimaran.judging.judgement import WIDEST_FIRST, Quality, counts_here
from trimaran.model_repository.stages import served_names
from trimaran.model_repository.versions import model_versions


@dataclass(frozen=True)
class KnownArtifact:
    artifact: Artifact
    rows: Rows
    # Where `rows` comes from.
    why: str


def find_artifact(reference: str, *, store: Store, repository: Path) -> KnownArtifact:
    """Find the served version of a model in the repository by its name, or an artifact of the store."""
    model = repository / reference
    if "/" not in reference and (model / CONFIG_FILE).is_file():
        version = served_version(repository, reference)
        require_proof_here(version)
        rows = read_serving(version).rows
        return KnownArtifact(
            artifact_of_version(version, store), rows, f"as {reference} version {version.name} is served"
        )
    try:
        artifact = store.open(reference)
    except UsageError as error:
        names = sorted(path.parent.parent.name for path in repository.glob(f"*/*/{SERVING_FILE}"))
        raise UsageError(
            f"Neither a model of {repository} nor a single artifact of {store.root} is called {reference!r}.",
            hint=f"Models: {', '.join(dict.fromkeys(names)) or 'none'}. {error.hint}",
        ) from error
    return certified(artifact, store)


def served_version(repository: Path, name: str) -> Path:
    """The folder of the newest version that is served.

    Raises UsageError if there is none, and IntegrityError if a file of it differs from its digest.
    """
    model = repository / name
    served = model_versions(repository, name).served
    if not served:
        raise UsageError(f"{model} has no version that is served.", hint="`trimaran promote` chooses one.")
    version = model / str(served[-1])
    require_undamaged(version, read_config(model / CONFIG_FILE))
    return version


def certified(artifact: Artifact, store: Store) -> KnownArtifact:
    """By the judgements of this artifact in the store; of several, the most careful."""
    proven = [quality.rows for quality in store.remembered("assess", Quality) if counts_here(quality, artifact)]
    if proven:
        return KnownArtifact(artifact, max(proven, key=WIDEST_FIRST.index), "by its batch-invariance certificate")
    return KnownArtifact(artifact, "alone", "it has no batch-invariance certificate, and rows alone are always safe")


def artifact_of_version(version: Path, store: Store) -> Artifact:
    """The artifact that a version was laid out from. It is put back into the store if it is no longer there."""
    laid_out = load_artifact(version, verify=False)
    with contextlib.suppress(IntegrityError):
        if (stored := store.find(laid_out.recipe)) is not None and stored.files == laid_out.files:
            return stored
    target = store.path_of(laid_out.recipe)
    with temporary_sibling(target) as folder:
        for name, served in served_names(laid_out).items():
            source = version / served
            if not source.is_file():
                raise IntegrityError(f"{source} is missing.", hint="Lay the artifact out again.")
            link_or_copy(source, folder / name)
        shutil.copyfile(version / MANIFEST, folder / MANIFEST)
        load_artifact(folder)
        publish(folder, target)
    return load_artifact(target, verify=False)
