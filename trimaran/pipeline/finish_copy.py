"""A writable copy of a repository, for `trimaran finish --into`: the original may be mounted read-only."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE
from trimaran.core.digests import DIGESTS_FILE
from trimaran.core.repository import model_folders
from trimaran.core.store import publish, temporary_sibling, write_atomically

# In each copied model: what it was copied from.
SOURCE_FILE = "copied_from.sha256"


def copy_repository(repository: Path, folder: Path) -> None:
    """Copy every model that is missing in `folder`, or has changed since it was copied.

    What was finished in the copy stays, as long as its source is the same. A model that changed is copied anew.
    """
    for model in model_folders(repository):
        target, digest = folder / model.name, _digest(model)
        marker = target / SOURCE_FILE
        if marker.is_file() and marker.read_text(encoding="utf-8") == digest:
            continue
        with temporary_sibling(target) as copied:
            shutil.copytree(model, copied, dirs_exist_ok=True)
            write_atomically(copied / SOURCE_FILE, digest)
            publish(copied, target)


def _digest(model: Path) -> str:
    """Of the configuration and of each version's list of digests, which names every file of it."""
    lists = sorted(model.glob(f"*/{DIGESTS_FILE}"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in (model / CONFIG_FILE, *lists))).hexdigest()
