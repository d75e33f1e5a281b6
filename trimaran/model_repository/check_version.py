"""Whether one version of a model is complete, matches its manifest, and fits its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.artifact import MANIFEST, Artifact, load_artifact, sha256_of
from trimaran.core.backends import refuse_foreign_engine
from trimaran.core.digests import DIGESTS_FILE, damages_of, is_listed
from trimaran.core.errors import IntegrityError, TrimaranError
from trimaran.core.model_config import ON_DEMAND, ModelConfig, TensorConfig
from trimaran.core.serving_json import BLS, SERVING_FILE, Serving, read_serving
from trimaran.judging.golden import GOLDEN_FILE, read_golden
from trimaran.model_repository.check_prepared import prepared_problems
from trimaran.model_repository.layout import stage_imports
from trimaran.model_repository.problem import Problem, missing, problem
from trimaran.model_repository.stages import DEFAULT_FILE, TOKENIZER_FILES, served_names, text_interface
from trimaran.model_repository.tensors import tensor_from_spec
from trimaran.runtime.wire import COUNTS

# Outputs whose last axis has one number for each label.
_LABELLED = ("logits", "token_logits", "label_probabilities")


@dataclass(frozen=True)
class _Version:
    """A version that trimaran laid out, as its files describe it."""

    folder: Path
    config: ModelConfig
    config_path: Path
    # The file that its backend opens; empty for an ensemble.
    entry: str
    artifact: Artifact
    serving: Serving

    @property
    def python(self) -> bool:
        return self.config.backend == "python"


def version_problems(folder: Path, config: ModelConfig, config_path: Path, *, served: bool) -> Iterator[Problem]:
    """The configuration of `config_path` is compared only with a version that is `served`."""
    problems = list(_content_problems(folder, config, config_path, served=served))
    yield from problems
    reported = {item.place for item in problems}
    yield from (item for item in _damages(folder, config) if item.place not in reported)


def _damages(folder: Path, config: ModelConfig) -> Iterator[Problem]:
    """Every file is read: what is on the disk may have changed without anybody writing it."""
    if not is_listed(folder, config):
        return
    if not (folder / DIGESTS_FILE).is_file():
        yield missing(folder / DIGESTS_FILE, "the configuration says that it lists the files of this version.")
        return
    codes = {"missing": "file-missing", "differs": "digest-mismatch", "unlisted": "unlisted"}
    try:
        for damage in damages_of(folder, remembered=False):
            yield problem(codes[damage.kind], damage.path, damage.sentence)
    except IntegrityError as error:
        yield problem("digest-mismatch", folder / DIGESTS_FILE, error.message)


def _content_problems(folder: Path, config: ModelConfig, config_path: Path, *, served: bool) -> Iterator[Problem]:
    entry = "model.py" if config.backend == "python" else config.default_model_filename
    entry = entry or DEFAULT_FILE.get(config.backend, "")
    if entry and not (folder / entry).is_file():
        yield missing(folder / entry, f"the {config.backend} backend opens it.")
    if not (folder / MANIFEST).is_file():
        return  # a model from elsewhere: nothing was promised of it
    try:
        artifact = load_artifact(folder, verify=False)
        served_names(artifact)
    except TrimaranError as error:
        yield problem("manifest-unreadable", folder / MANIFEST, error.message)
        return
    if not (folder / SERVING_FILE).is_file():
        yield missing(folder / SERVING_FILE, "the stage reads it when it starts.")
        return
    try:
        version = _Version(folder, config, config_path, entry, artifact, read_serving(folder))
    except IntegrityError as error:
        yield problem("settings-unreadable", folder / SERVING_FILE, error.message)
        return
    for check in (*_ALWAYS, *(_WHEN_SERVED if served else ())):
        yield from check(version)


def _stage_files(version: _Version) -> Iterator[Problem]:
    if version.python:
        for name in stage_imports(version.serving) if version.config.task else TOKENIZER_FILES:
            if not (version.folder / name).is_file() and not _is_newer_than(version.folder, name):
                yield missing(version.folder / name, "the stage imports it when it starts.")


def _is_newer_than(folder: Path, name: str) -> bool:
    """Older versions have a `text.py` that does not import all that it imports now."""
    text = folder / "text.py"
    newer = name in TOKENIZER_FILES and text.is_file()
    return newer and f"from .{name.removesuffix('.py')} import".encode() not in text.read_bytes()


def _artifact_files(version: _Version) -> Iterator[Problem]:
    """A version of before the digest lists has only the files of its manifest to compare."""
    if (version.folder / DIGESTS_FILE).is_file():
        return
    names = served_names(version.artifact)
    in_stage = bool(version.config.task) and version.serving.backend != BLS
    weights = not version.config.ensemble and (in_stage or not version.python)
    for file in version.artifact.files:
        path = version.folder / names[file.name]
        if not (version.python if file.name.startswith("tokenizer") else weights):
            continue
        if not path.is_file():
            if path.name != version.entry:
                yield missing(path, "the manifest lists it.")
        elif path.stat().st_size != file.size_bytes or sha256_of(path) != file.sha256:
            yield problem("digest-mismatch", path, f"differs from its manifest (wanted sha256 {file.sha256[:12]}…).")


def _golden(version: _Version) -> Iterator[Problem]:
    path = version.folder / GOLDEN_FILE
    if not path.is_file():
        return
    try:
        task = read_golden(path).task
    except IntegrityError as error:
        yield problem("golden-mismatch", path, error.message)
        return
    if task != version.artifact.task:
        yield problem("golden-mismatch", path, f"wanted answers of {version.artifact.task}, found those of {task}.")


def _plan(version: _Version) -> Iterator[Problem]:
    """Only of what is loaded: unlike GPUs share one repository, and each has its own plan in the text stage.

    The copy for the container's own backend is loaded on demand, on the machine whose plan it holds.
    """
    on_demand = version.config.parameters.get("load") == ON_DEMAND
    if version.config.backend == "tensorrt" and not on_demand:
        try:
            refuse_foreign_engine(version.artifact)
        except IntegrityError as error:
            yield problem("foreign-plan", version.folder, error.message, remedy=error.hint)


def _without_counts(tensors: Iterable[TensorConfig]) -> list[TensorConfig]:
    return [tensor for tensor in tensors if tensor.name not in COUNTS]


def _interface(version: _Version) -> Iterator[Problem]:
    signature = version.artifact.signature
    inputs, outputs = text_interface(version.artifact)
    if version.python and not version.config.task:
        outputs = tuple(map(tensor_from_spec, signature.inputs))
    elif not version.config.task:
        inputs = tuple(map(tensor_from_spec, signature.inputs))
        outputs = tuple(map(tensor_from_spec, signature.outputs))
    for wanted, present in (inputs, version.config.inputs), (outputs, version.config.outputs):
        # Models that were laid out before count nothing, or only the texts that they cut.
        if _without_counts(wanted) != _without_counts(present):
            message = f"the artifact's signature wants {_listed(wanted)}, found {_listed(present)}."
            yield problem("dims-mismatch", version.config_path, message)


def _batch(version: _Version) -> Iterator[Problem]:
    taken, proven = version.config.max_batch_size, version.artifact.profile.batch.maximum
    if taken > proven:
        message = f"takes batches of {taken}, and the artifact was proven up to {proven}."
        yield problem("batch-mismatch", version.config_path, message)


def _labels(version: _Version) -> Iterator[Problem]:
    counts = [spec.dims[-1] for spec in version.artifact.signature.outputs if spec.name in _LABELLED]
    if counts and counts[0] != len(version.artifact.labels):
        message = f"wanted one label for each of {counts[0]} logits, found {len(version.artifact.labels)}."
        yield problem("labels-mismatch", version.folder / MANIFEST, message)


def _batching(version: _Version) -> Iterator[Problem]:
    plain = version.config.backend not in ("", "python")
    if plain and version.config.dynamic_batching and version.serving.rows != "padded":
        message = (
            f"batches requests of different lengths, but this engine was proven only with rows {version.serving.rows}: "
            "an answer would depend on its neighbours."
        )
        yield problem("batching-unproven", version.config_path, message)


def _prepared(version: _Version) -> Iterator[Problem]:
    yield from prepared_problems(version.folder)


_ALWAYS = (_stage_files, _artifact_files, _golden, _prepared)
_WHEN_SERVED = (_plan, _interface, _batch, _labels, _batching)


def _listed(tensors: tuple[TensorConfig, ...]) -> str:
    return ", ".join(f"{item.name} {item.data_type} {list(item.dims)}" for item in tensors) or "nothing"
