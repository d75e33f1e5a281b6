"""Adds digest lists to versions that were laid out without them, and signs the lists."""

from __future__ import annotations

from pathlib import Path

from trimaran.core.artifact import MANIFEST
from trimaran.core.digests import DIGESTS_FILE, list_digests
from trimaran.core.repository import model_folders, versions_of
from trimaran.core.signatures import sign_digests
from trimaran.core.store import locked


def seal(repository: Path, *, key: Path | None = None) -> tuple[Path, ...]:
    """Lists the files of every version of ours that has no list yet, and with a private `key` signs every list.

    Returns the folders of the versions that changed.
    """
    sealed = []
    with locked(repository):
        for model in model_folders(repository):
            for version in versions_of(model):
                folder = model / str(version)
                if not (folder / MANIFEST).is_file():
                    continue
                if not (folder / DIGESTS_FILE).exists():
                    list_digests(folder, model=model.name, version=version)
                elif key is None:
                    continue
                if key is not None:
                    sign_digests(folder, key)
                sealed.append(folder)
    return tuple(sealed)
