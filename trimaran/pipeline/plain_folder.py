"""Writes an artifact as a plain folder: model, tokenizer, config, and the manifest with its proofs."""

from __future__ import annotations

import shutil
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact
from trimaran.core.errors import UsageError
from trimaran.core.store import Store, publish, temporary_sibling
from trimaran.export.reference import model_ref_of

# Files of the trained model that other libraries read beside a graph.
_CONFIGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json")


def write_plain_folder(artifact: Artifact, target: Path, *, store: Store, parent: Path | None = None) -> Artifact:
    """Copies the artifact to `target`, which is written whole or not at all, and returns it from there.

    `parent` is the folder that it was made from, where that is such a plain folder too: configs are copied from there.
    A folder that an earlier command wrote is replaced. Raises UsageError for one that holds something else.
    """
    target = target.absolute()
    if target.exists() and not (target / MANIFEST).is_file() and (target.is_file() or any(target.iterdir())):
        raise UsageError(
            f"{target} holds something that no command of trimaran wrote.", hint="Name an empty or a new folder."
        )
    with temporary_sibling(target) as folder:
        shutil.copytree(artifact.directory, folder, dirs_exist_ok=True)
        for path in _config_files(artifact, store, parent):
            if not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
        publish(folder, target)
    return artifact.model_copy().at(target)


def _config_files(artifact: Artifact, store: Store, parent: Path | None) -> list[Path]:
    """Of the trained model at the beginning of the line, if it is still there. A model made by a function has none."""
    line = store.lineage(artifact)
    origins = [Path(model_ref_of(ancestor).directory) for ancestor in line if ancestor.format == "torch"]
    for folder in (*((parent,) if parent else ()), *origins):
        if found := [folder / name for name in _CONFIGS if (folder / name).is_file()]:
            return found
    return []
