"""Writes an artifact as a plain folder: model, tokenizer, config, and the manifest with its proofs; or as optimum's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact
from trimaran.core.errors import UsageError
from trimaran.core.store import Store, publish, temporary_sibling
from trimaran.export.optimum_layout import write_optimum_model
from trimaran.export.reference import model_ref_of
from trimaran.pipeline.plan import require_writable

# Files of the trained model that other libraries read beside a graph.
_CONFIGS = ("config.json", "tokenizer_config.json", "special_tokens_map.json")
OPTIMUM_FACTS = "trimaran.json"
# Configs, vocabularies, and the modules of a sentence-transformers folder, down to the weights of its Dense layers.
_READ_BESIDE = ("*.json", "*.txt", "*.model", "[0-9]*_*/*")


def write_plain_folder(artifact: Artifact, target: Path, *, store: Store, parent: Path | None = None) -> Artifact:
    """Copies the artifact to `target`, which is written whole or not at all, and returns it from there.

    `parent` is the folder that it was made from, where that is such a plain folder too: configs are copied from there.
    A folder that an earlier command wrote is replaced. Raises UsageError for one that holds something else.
    """

    def fill(folder: Path) -> None:
        shutil.copytree(artifact.directory, folder, dirs_exist_ok=True)
        for path in _config_files(artifact, store, parent):
            if not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)

    return artifact.model_copy().at(_replaced(target, MANIFEST, fill))


def write_optimum_folder(artifact: Artifact, target: Path, *, store: Store, parent: Path | None = None) -> Path:
    """Writes a folder that optimum's ORTModelFor… or OVModelFor… opens, and sentence-transformers for embeddings.

    `trimaran.json` in it says what was proven, and which variables the model was proven with.
    """
    configs = _config_files(artifact, store, parent)
    if not any(path.name == "config.json" for path in configs):
        raise UsageError(
            f"The config.json of the trained model of {artifact.directory.name} is no longer there.",
            hint="Optimum needs it: keep the model's folder where it was.",
        )
    root = configs[0].parent
    files = [path for pattern in _READ_BESIDE for path in root.glob(pattern)]

    def fill(folder: Path) -> None:
        write_optimum_model(artifact, folder)
        for path in files:
            (folder / path.relative_to(root)).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / path.relative_to(root))
        if not (folder / "tokenizer.json").is_file():
            shutil.copyfile(artifact.directory / "tokenizer.json", folder / "tokenizer.json")
        facts = {
            "artifact": artifact.digest,
            "name": artifact.name,
            "proven": [str(check) for check in artifact.checks],
            "execution_environment": dict(artifact.execution_environment),
        }
        (folder / OPTIMUM_FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    return _replaced(target, OPTIMUM_FACTS, fill)


def require_output_folder(target: Path | None, layout: str = "plain") -> None:
    """Raises UsageError now for a folder that could not be written when the work is done."""
    if target is None:
        if layout == "optimum":
            raise UsageError("--layout is of a folder, and none was named.", hint="Add -o FOLDER.")
        return
    require_writable(target)
    _refuse_foreign(target.absolute(), OPTIMUM_FACTS if layout == "optimum" else MANIFEST)


def _refuse_foreign(target: Path, marker: str) -> None:
    if target.exists() and not (target / marker).is_file() and (target.is_file() or any(target.iterdir())):
        raise UsageError(
            f"{target} holds something that no command of trimaran wrote.", hint="Name an empty or a new folder."
        )


def _replaced(target: Path, marker: str, fill: Callable[[Path], None]) -> Path:
    """Fills the folder, whole or not at all. `marker` is the file by which one that was written before is known."""
    target = target.absolute()
    _refuse_foreign(target, marker)
    with temporary_sibling(target) as folder:
        fill(folder)
        publish(folder, target)
    return target


def _config_files(artifact: Artifact, store: Store, parent: Path | None) -> list[Path]:
    """Of the trained model at the beginning of the line, if it is still there. A model made by a function has none."""
    line = store.lineage(artifact)
    origins = [Path(model_ref_of(ancestor).directory) for ancestor in line if ancestor.format == "torch"]
    files = [Path(adopted.details["source"]) for adopted in line if adopted.recipe.step == "adopted"]
    origins += [folder for file in files for folder in (file.parent, file.parent.parent)]
    for folder in (*((parent,) if parent else ()), *origins):
        if configs := [folder / name for name in _CONFIGS if (folder / name).is_file()]:
            return configs
    return []
