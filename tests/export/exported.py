"""From a zoo model to its artifacts, in one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.export import zoo
from tests.garbage import freeze_libraries
from trimaran.core.artifact import Artifact
from trimaran.core.corpus import encoder_of
from trimaran.core.progress import SilentProgress
from trimaran.core.spec import ModelRef, Range, ShapeProfile
from trimaran.core.store import Store
from trimaran.export.locate import locate
from trimaran.export.reference import reference
from trimaran.export.to_onnx import export
from trimaran.runtime.answers import Answering, Reader
from trimaran.runtime.onnxruntime_engine import Engine

PROFILE = ShapeProfile(batch=Range(minimum=1, typical=2, maximum=5), sequence=Range(minimum=1, typical=9, maximum=32))
# Texts fit into it.
LONG = ShapeProfile(batch=Range(minimum=1, typical=2, maximum=3), sequence=Range(minimum=1, typical=16, maximum=64))
QUIET = SilentProgress()
Exports = Callable[[str, str], Artifact]


def reference_of(ref: ModelRef, root: Path, *, profile: ShapeProfile = PROFILE) -> Artifact:
    return reference(ref, profile, store=Store(root / "store"), progress=QUIET)


def exported(ref: ModelRef, root: Path, *, profile: ShapeProfile = PROFILE, **options: Any) -> Artifact:
    freeze_libraries()
    store = Store(root / "store")
    return export(reference(ref, profile, store=store, progress=QUIET), store=store, progress=QUIET, **options)


def exported_family(
    root: Path,
    family: str,
    task: str,
    *,
    profile: ShapeProfile = PROFILE,
    located: dict[str, Any] | None = None,
    **changes: Any,
) -> Artifact:
    folder = zoo.saved_model(root / "model", family, task, **changes)
    return exported(locate(str(folder), task_name=task, **(located or {})), root, profile=profile)


def model_folder(artifact: Artifact) -> Path:
    """The folder that `exported_family` made the model in."""
    return artifact.directory.parent.parent / "model"


def answering(artifact: Artifact) -> Answering:
    """The graph as a server would answer with it, in batches."""
    return Answering(
        infer=Engine(str(artifact.entry_path), threads=1).infer,
        encoder=encoder_of(artifact),
        reader=Reader(str(artifact.directory / "tokenizer.json")),
        labels=artifact.labels,
        facts=artifact.details["answers"],
        policy="padded",
        maximum_batch=artifact.profile.batch.maximum,
    )
