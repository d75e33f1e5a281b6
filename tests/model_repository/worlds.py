"""Tiny artifacts in the forms that a repository must take: ONNX for two engines, and an IR under another name."""

from __future__ import annotations

from pathlib import Path

from tests.tiny import tiny_artifact
from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.store import Store

DRAFT_FIELDS = set(Draft.model_fields)


def changed(artifact: Artifact, root: Path, **changes: object) -> Artifact:
    """The same files under another draft, published as an artifact of its own."""
    recipe = Recipe(step="changed", parents=(artifact.digest,), parameters={key: repr(changes[key]) for key in changes})

    def make(folder: Path) -> Draft:
        for file in artifact.files:
            (folder / file.name).write_bytes((artifact.directory / file.name).read_bytes())
        return Draft.model_validate({**artifact.model_dump(include=DRAFT_FIELDS), **changes})

    return Store(root).produce(recipe, make)


def ir_artifact(root: Path, *, task: str = "embedding") -> Artifact:
    """An OpenVINO IR whose files are not yet named as the official backend wants them."""
    import openvino as ov

    source = tiny_artifact(root, task=task, backend="openvino")

    def make(folder: Path) -> Draft:
        ov.save_model(ov.convert_model(str(source.entry_path)), str(folder / "graph.xml"), compress_to_fp16=False)
        (folder / "tokenizer.json").write_bytes((source.directory / "tokenizer.json").read_bytes())
        facts = source.model_dump(include=DRAFT_FIELDS)
        return Draft.model_validate({**facts, "format": "openvino", "entry": "graph.xml"})

    return Store(root).produce(Recipe(step="ir", parents=(source.digest,)), make)
