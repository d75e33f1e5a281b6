"""Whether one version of a model is whole, is what its manifest says, and fits its configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError as SchemaError

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact, sha256_of
from trimaran.core.backends import refuse_foreign_engine
from trimaran.core.errors import IntegrityError, TrimaranError, first_line
from trimaran.core.model_config import ModelConfig, Tensor
from trimaran.judging.golden import GOLDEN_FILE, read_golden
from trimaran.model_repository.problem import LAY_OUT_AGAIN, Problem, missing
from trimaran.model_repository.stages import (
    DEFAULT_FILE,
    SERVING_FILE,
    TEXT_FILES,
    Serving,
    served_names,
    text_interface,
)
from trimaran.model_repository.tensors import tensor_from_spec

# Outputs whose last axis has one number for each label.
_LABELLED = ("logits", "token_logits", "label_probabilities")


def of_version(folder: Path, config: ModelConfig, *, place: Path, served: bool) -> Iterator[Problem]:
    """`place` is the configuration's file, for what is wrong between the two."""
    entry = "model.py" if config.backend == "python" else config.default_model_filename
    entry = entry or DEFAULT_FILE.get(config.backend, "")
    if entry and not (folder / entry).is_file():
        yield missing(folder / entry, f"the {config.backend} backend opens it.")
    if not (folder / MANIFEST).is_file():
        return  # a model from elsewhere: nothing was promised of it
    try:
        artifact = load_artifact(folder, verify=False)
        names = served_names(artifact)
    except TrimaranError as error:
        yield Problem(code="manifest-unreadable", place=folder / MANIFEST, message=error.message, remedy=LAY_OUT_AGAIN)
        return
    serving = _serving(folder)
    if isinstance(serving, Problem):
        yield serving
        return
    yield from _of_stage(folder, config, serving)
    yield from _of_files(folder, artifact, names, config, serving, entry=entry)
    yield from _of_golden(folder, artifact)
    if config.backend == "tensorrt":
        yield from _of_plan(folder, artifact)
    if served:
        yield from _of_interface(folder, config, artifact, place)
        yield from _of_batching(config, serving, place)


def _serving(folder: Path) -> Serving | Problem:
    path = folder / SERVING_FILE
    if not path.is_file():
        return missing(path, "the stage reads it when it starts.")
    try:
        return Serving.model_validate_json(path.read_bytes())
    except SchemaError as error:
        return Problem(code="settings-unreadable", place=path, message=first_line(error), remedy=LAY_OUT_AGAIN)


def _of_stage(folder: Path, config: ModelConfig, serving: Serving) -> Iterator[Problem]:
    if config.backend != "python":
        return
    own = (*TEXT_FILES, f"{serving.backend}_engine.py") if "task" in config.parameters else ("text.py",)
    for name in own:
        if not (folder / name).is_file():
            yield missing(folder / name, "the stage imports it when it starts.")


def _of_files(
    folder: Path, artifact: Artifact, names: dict[str, str], config: ModelConfig, serving: Serving, *, entry: str
) -> Iterator[Problem]:
    text_level = config.backend == "python"
    weights = not config.ensemble and (not text_level or ("task" in config.parameters and serving.backend != "bls"))
    for file in artifact.files:
        path = folder / names[file.name]
        if not (text_level if file.name.startswith("tokenizer") else weights):
            continue
        if not path.is_file():
            if path.name != entry:
                yield missing(path, "the manifest lists it.")
        elif path.stat().st_size != file.size_bytes or sha256_of(path) != file.sha256:
            yield Problem(
                code="digest-mismatch",
                place=path,
                message=f"differs from its manifest (wanted sha256 {file.sha256[:12]}…).",
                remedy=f"It was damaged or edited. {LAY_OUT_AGAIN}",
            )


def _of_golden(folder: Path, artifact: Artifact) -> Iterator[Problem]:
    path = folder / GOLDEN_FILE
    if not path.is_file():
        return
    try:
        golden = read_golden(path)
    except IntegrityError as error:
        yield Problem(code="golden-mismatch", place=path, message=error.message, remedy="Deploy the model again.")
        return
    if golden.task != artifact.task:
        message = f"wanted answers of {artifact.task}, found those of {golden.task}."
        yield Problem(code="golden-mismatch", place=path, message=message, remedy="Deploy the model again.")


def _of_plan(folder: Path, artifact: Artifact) -> Iterator[Problem]:
    try:
        refuse_foreign_engine(artifact)
    except IntegrityError as error:
        yield Problem(code="foreign-plan", place=folder, message=error.message, remedy=error.hint)


def _of_interface(folder: Path, config: ModelConfig, artifact: Artifact, place: Path) -> Iterator[Problem]:
    engine_inputs = tuple(tensor_from_spec(spec) for spec in artifact.signature.inputs)
    if "task" in config.parameters:
        inputs, outputs = text_interface(artifact)
    elif config.backend == "python":
        inputs, outputs = text_interface(artifact)[0], engine_inputs
    else:
        inputs, outputs = engine_inputs, tuple(tensor_from_spec(spec) for spec in artifact.signature.outputs)
    for wanted, found in (inputs, config.inputs), (outputs, config.outputs):
        if wanted != found:
            yield Problem(
                code="dims-mismatch",
                place=place,
                message=f"the artifact's signature wants {_listed(wanted)}, found {_listed(found)}.",
                remedy="Lay the artifact out under another name.",
            )
    if config.max_batch_size > artifact.profile.batch.maximum:
        yield Problem(
            code="batch-mismatch",
            place=place,
            message=f"takes batches of {config.max_batch_size}, and the artifact was proven up to "
            f"{artifact.profile.batch.maximum}.",
            remedy="Lower max_batch_size, or deploy with a larger --batch.",
        )
    counts = [spec.dims[-1] for spec in artifact.signature.outputs if spec.name in _LABELLED]
    if counts and counts[0] != len(artifact.labels):
        yield Problem(
            code="labels-mismatch",
            place=folder / MANIFEST,
            message=f"wanted one label for each of {counts[0]} logits, found {len(artifact.labels)}.",
            remedy="Export the model again with a config whose id2label is complete.",
        )


def _of_batching(config: ModelConfig, serving: Serving, place: Path) -> Iterator[Problem]:
    plain = config.backend not in ("", "python")
    if plain and config.dynamic_batching and serving.rows != "padded":
        yield Problem(
            code="batching-unproven",
            place=place,
            message=f"batches unlike requests, and this engine was proven with rows {serving.rows} only: "
            "an answer would depend on its neighbours.",
            remedy="Remove dynamic_batching from this configuration.",
        )


def _listed(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{item.name} {item.data_type} {list(item.dims)}" for item in tensors) or "nothing"
