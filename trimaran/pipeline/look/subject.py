"""Finds what `trimaran look` is asked to show: a trained model, and the engine that was made from it, if any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact
from trimaran.core.config_pbtxt import CONFIG_FILE
from trimaran.core.errors import IntegrityError, UsageError
from trimaran.core.families import STATIC
from trimaran.core.progress import SilentProgress
from trimaran.core.serving_json import SERVING_FILE
from trimaran.core.spec import ModelRef, Range, ShapeProfile
from trimaran.core.store import Store, default_home
from trimaran.export.locate import current_digest, locate
from trimaran.export.reference import model_ref_of, reference
from trimaran.pipeline.artifact_lookup import artifact_of_version
from trimaran.pipeline.local.opening import Source, find_source, manifest_of

_LONGEST = 512


@dataclass(frozen=True)
class Subject:
    """What is looked at."""

    ref: ModelRef
    # Eager PyTorch as an artifact: how texts are read. Its longest sequence is the longest that is shown.
    eager: Artifact
    # What was made from it, and where it was found; None for a trained model.
    engine: Artifact | None = None
    source: Source | None = None


def find_subject(
    model: str,
    *,
    most_tokens: int,
    scratch: Path,
    task_name: str = "auto",
    trained: str | None = None,
    repository: Path,
    store: Path | None = None,
) -> Subject:
    """`model` is a trained model, the name of a deployed one, a version's folder or an artifact.

    `trained` is the model that an artifact was made from, where the store does not know it. Raises UsageError if it is
    needed, and for a model without layers; IntegrityError if the trained model has changed since.
    """
    if _is_trained(model):
        if trained:
            raise UsageError(f"{model} is a trained model, so --trained has no meaning.")
        return _trained_subject(locate(model, task_name=task_name), most_tokens, scratch)
    source = find_source(model, repository=repository, store=store)
    home = Store((store or default_home() / "store").absolute())
    made = manifest_of(source)
    engine = artifact_of_version(source.folder, home) if (source.folder / SERVING_FILE).is_file() else made
    ancestors = [ancestor for ancestor in home.lineage(engine) if ancestor.format == "torch"]
    if trained:
        eager = _trained_subject(locate(trained, task_name=made.task), most_tokens, scratch)
    elif ancestors:
        ref = model_ref_of(ancestors[0])
        _require_unchanged(ref)
        eager = Subject(ref, _cut(ancestors[0], most_tokens))
    else:
        raise UsageError(
            f"The trained model of {model} is not known: its reference is not in {home.root}.",
            hint="Name it: --trained MODEL.",
        )
    _require_layers(eager.ref)
    if engine.format == "torch":
        return eager
    longest = min(eager.eager.profile.sequence.maximum, engine.profile.sequence.maximum)
    return Subject(eager.ref, _cut(eager.eager, longest), engine, source)


def _is_trained(model: str) -> bool:
    folder = Path(model).expanduser()
    ours = any((folder / name).is_file() for name in (MANIFEST, SERVING_FILE, CONFIG_FILE))
    return model.startswith("package:") or (folder.is_dir() and not ours)


def _trained_subject(ref: ModelRef, most_tokens: int, scratch: Path) -> Subject:
    _require_layers(ref)
    longest = min(ref.default_sequence or _LONGEST, ref.positions, most_tokens)
    profile = ShapeProfile(
        batch=Range(minimum=1, typical=1, maximum=1), sequence=Range(minimum=1, typical=1, maximum=longest)
    )
    eager = reference(ref, profile, store=Store(scratch / "reference"), progress=SilentProgress())
    return Subject(model_ref_of(eager), eager)


def _cut(artifact: Artifact, longest: int) -> Artifact:
    tokens = artifact.profile.sequence
    maximum = min(tokens.maximum, longest)
    sequence = Range(minimum=min(tokens.minimum, maximum), typical=min(tokens.typical, maximum), maximum=maximum)
    return artifact.model_copy(update={"profile": ShapeProfile(batch=artifact.profile.batch, sequence=sequence)})


def _require_layers(ref: ModelRef) -> None:
    if ref.module or ref.family == STATIC.name:
        raise UsageError(
            f"{ref.source} has no attention to look at: it is {'a module of its own' if ref.module else 'a table'}.",
            hint="Only transformers can be looked at.",
        )


def _require_unchanged(ref: ModelRef) -> None:
    if not Path(ref.directory).is_dir():
        raise UsageError(
            f"The trained model is no longer in {ref.directory}.", hint="Name it where it is now: --trained MODEL."
        )
    if current_digest(ref) != ref.digest:
        raise IntegrityError(
            f"The model in {ref.directory} has changed since it was deployed.",
            hint="Deploy it again, or name the model as it was: --trained MODEL.",
        )
