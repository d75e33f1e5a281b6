"""Adds digest lists to versions that were laid out without them."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.artifact import MANIFEST
from trimaran.core.digests import DIGESTS_FILE, list_digests
from trimaran.core.repository import model_folders, versions_of
from trimaran.core.store import locked


def seal(repository: Path) -> tuple[Path, ...]:
    """Lists the files of every version of ours that has no list yet; returns the folders of these versions."""
    sealed = []
    with locked(repository):
        for model in model_folders(repository):
            for version in versions_of(model):
                folder = model / str(version)
                if (folder / MANIFEST).is_file() and not (folder / DIGESTS_FILE).exists():
                    list_digests(folder, model=model.name, version=version)
                    sealed.append(folder)
    return tuple(sealed)
