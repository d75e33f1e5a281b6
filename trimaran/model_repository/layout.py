"""Lays an artifact out as the next version of Triton models; a version is published whole and never overwritten."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import trimaran.runtime
from trimaran.core.artifact import MANIFEST, Artifact, verify_files
from trimaran.core.choices import Rows
from trimaran.core.config_pbtxt import CONFIG_FILE, read_config, write_config
from trimaran.core.digests import DIGESTS_FILE, LISTED, list_digests
from trimaran.core.errors import RepositoryError, UnavailableError, UsageError
from trimaran.core.model_config import PROOF, RELEASE, UNPROVEN, ModelConfig, TensorConfig
from trimaran.core.repository import MODEL_NAME, versions_of
from trimaran.core.serving_json import Serving, write_serving
from trimaran.core.shadow_graph import place_shadow_graph
from trimaran.core.spec import Frozen
from trimaran.core.store import NO_SPACE, link_or_copy, locked, publish, temporary_sibling
from trimaran.judging.golden import GOLDEN_FILE, Golden
from trimaran.model_repository.stages import (
    DEFAULT_FILE,
    ENGINE_FILES,
    TEXT_FILES,
    TOKENIZER_FILES,
    engine_model,
    ensemble,
    finished_in_graph,
    served_names,
    serving_of,
    tensor_stage,
    tensor_stage_name,
    text_stage,
    tokenizer_stage,
)
from trimaran.model_repository.versions import serving_only
from trimaran.model_repository.warmups import WARMUP_FOLDER, warmup_files

REPORT_FILE = "report.json"
TEXT_STAGE = "triton_text_model.py"
TOKENIZER_STAGE = "triton_tokenizer_model.py"
_RUNTIME = Path(trimaran.runtime.__file__).parent


class Deployment(Frozen):
    repository: Path
    # The model that callers ask.
    name: str
    version: int
    # All models that got this version.
    models: tuple[str, ...]


def lay_out(
    artifact: Artifact,
    *,
    repository: Path,
    name: str,
    rows: Rows,
    threads: int,
    report: Path | None = None,
    golden: Golden | None = None,
    separate: bool | None = None,
    beside: Path | None = None,
    unproven: bool = False,
    shadow: Artifact | None = None,
) -> Deployment:
    """Adds the artifact as the next version of `name`, with the plain tensor model beside it.

    `separate` makes the engine a model of its own that `name` calls, instead of a part of `name`'s process. By default
    only engines that a C++ backend runs on a GPU are separate. The files of `beside` go into the version, too.
    `unproven` marks the version in its configuration. `shadow` is the fp32 graph, for a shadow check where the store is
    not: it travels in the version's folder.

    Raises RepositoryError when callers of the present versions could not call this one.
    """
    if not MODEL_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a model: wanted letters, digits, '.', '_' and '-', found something else.",
            hint="Give another --name.",
        )
    verify_files(artifact)
    parts = _parts(artifact, name, rows=rows, threads=threads, separate=separate)
    if unproven:
        parts = [replace(part, config=_marked(part.config)) for part in parts]
    repository = repository.absolute()
    # One layout at a time, so that two never take the same version number.
    with _writable(repository), locked(repository):
        for part in reversed(parts):
            _require_same_interface(repository / part.config.name, part.config)
        version = _next_version(repository, name)
        # The model to call comes last: when it is there, so is everything that it needs.
        for part in parts:
            with _staged(repository, _with_step_version(part.config, version), version, artifact) as folder:
                _fill(folder, artifact, part)
                if part is parts[-1]:
                    _add_proofs(folder, report, golden, beside)
                    if shadow is not None:
                        place_shadow_graph(shadow, folder)
    models = tuple(part.config.name for part in reversed(parts))
    return Deployment(repository=repository, name=name, version=version, models=models)


@dataclass(frozen=True)
class _Part:
    """One model of a layout."""

    config: ModelConfig
    serving: Serving
    # The file of `runtime` that becomes its `model.py`, and the files that it imports.
    stage: str = ""
    imports: tuple[str, ...] = ()
    # Which files of the artifact it takes.
    weights: bool = False
    tokenizer: bool = False


def _parts(artifact: Artifact, name: str, *, rows: Rows, threads: int, separate: bool | None) -> list[_Part]:
    """In the order in which they are published. docs/decisions/0003 explains the layouts."""
    row = engine_model(artifact)
    apart = row.separate if separate is None else separate
    serving = serving_of(artifact, rows=rows, threads=threads)
    if not row.backend:
        return [_text_part(artifact, name, serving)]
    # Triton's batcher joins requests of equal shape only, which would leave a GPU with small batches. There the text
    # stage packs the batches by itself, in several processes.
    joined = bool(separate) and finished_in_graph(artifact, rows)
    tensor = tensor_stage(name, artifact, rows=rows, threads=threads, on_demand=not apart or joined)
    engine = _Part(tensor, serving, weights=True)
    if joined:
        tokenizer = tokenizer_stage(name, artifact)
        return [
            engine,
            _Part(tokenizer, serving, stage=TOKENIZER_STAGE, imports=TOKENIZER_FILES, tokenizer=True),
            _Part(ensemble(name, artifact), serving),
        ]
    if apart:
        serving = serving.calling(tensor.name, artifact.signature.output_names)
    return [engine, _text_part(artifact, name, serving, calls=apart)]


def _text_part(artifact: Artifact, name: str, serving: Serving, *, calls: bool = False) -> _Part:
    return _Part(
        text_stage(name, artifact, calls=calls),
        serving,
        stage=TEXT_STAGE,
        imports=stage_imports(serving),
        weights=not calls,
        tokenizer=True,
    )


def _marked(config: ModelConfig) -> ModelConfig:
    return config.model_copy(update={"parameters": {**config.parameters, PROOF: UNPROVEN}})


def stage_imports(serving: Serving) -> tuple[str, ...]:
    """The files that the text stage imports."""
    return (*TEXT_FILES, *ENGINE_FILES.get(serving.backend, (f"{serving.backend}_engine.py",)))


def _with_step_version(config: ModelConfig, version: int) -> ModelConfig:
    """An ensemble calls the version of each step that it was made with: during a switch two versions are loaded."""
    steps = tuple(step.model_copy(update={"version": version}) for step in config.steps)
    return config.model_copy(update={"steps": steps})


def copy_version(model: Path, version: int, target: Path) -> None:
    """One version of a model by itself, as links, for a trial server."""
    for path in (model / str(version)).rglob("*"):
        if path.is_file():
            link_or_copy(path, target / str(version) / path.relative_to(model / str(version)))
    for path in (model / WARMUP_FOLDER).glob("*"):
        link_or_copy(path, target / WARMUP_FOLDER / path.name)
    shutil.copyfile(model / str(version) / CONFIG_FILE, target / CONFIG_FILE)


def stage_is_current(folder: Path, serving: Serving) -> bool:
    """Whether a version's text stage is the one of this trimaran. An older stage may not know a newer setting."""
    sources = {"model.py": TEXT_STAGE, **{name: name for name in stage_imports(serving)}}
    return all(
        (folder / name).is_file() and (folder / name).read_bytes() == (_RUNTIME / source).read_bytes()
        for name, source in sources.items()
    )


def _fill(folder: Path, artifact: Artifact, part: _Part) -> None:
    """The version imports nothing of trimaran, so that the official container does not need it."""
    for name, served in served_names(artifact).items():
        if part.tokenizer if name.startswith("tokenizer") else part.weights:
            link_or_copy(artifact.directory / name, folder / served)
    if part.stage:
        shutil.copyfile(_RUNTIME / part.stage, folder / "model.py")
    for source in part.imports:
        (folder / source).parent.mkdir(exist_ok=True)
        shutil.copyfile(_RUNTIME / source, folder / source)
    write_serving(folder, part.serving)
    (folder / MANIFEST).write_text(artifact.to_json(), encoding="utf-8")


def _add_proofs(folder: Path, report: Path | None, golden: Golden | None, beside: Path | None) -> None:
    if beside is not None:
        for path in filter(Path.is_file, beside.rglob("*")):
            link_or_copy(path, folder / path.relative_to(beside))
    if report is not None:
        shutil.copyfile(report / REPORT_FILE if report.is_dir() else report, folder / REPORT_FILE)
    if golden is not None:
        (folder / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")


@contextlib.contextmanager
def _staged(repository: Path, config: ModelConfig, version: int, artifact: Artifact) -> Iterator[Path]:
    """A folder to fill with the version; it is published with its configuration when the block ends well.

    Each version keeps the configuration that it was published with, so that a rollback needs no guess. The first
    version of a model is served; later ones are when they are promoted.
    """
    release = f"{version}:{hashlib.sha256(artifact.to_json().encode()).hexdigest()[:16]}"
    parameters = {**config.parameters, LISTED: DIGESTS_FILE, RELEASE: release}
    config = config.model_copy(update={"parameters": parameters})
    model = repository / config.name
    used = {item.file for warmup in config.warmups for item in warmup.inputs if item.file}
    warmups = {name: data for name, data in warmup_files(artifact).items() if name in used}
    known = model.is_dir()
    target = model / str(version) if known else model
    with temporary_sibling(target) as folder:
        inner = folder if known else folder / str(version)
        inner.mkdir(parents=True, exist_ok=True)
        yield inner
        write_config(inner / CONFIG_FILE, config)
        list_digests(inner, model=model.name, version=version)
        if not known:
            _write_warmups(folder, warmups)
            write_config(folder / CONFIG_FILE, serving_only(config, (version,)))
        else:
            _write_warmups(model, warmups)
            _name_served(model)
        publish(folder, target)


def _name_served(model: Path) -> None:
    """Names what is served, before there is a newer version. Repositories of before served the newest."""
    config = read_config(model / CONFIG_FILE)
    if not config.served_versions:
        write_config(model / CONFIG_FILE, serving_only(config, config.serves(versions_of(model))))


def _write_warmups(model: Path, files: dict[str, bytes]) -> None:
    folder = model / WARMUP_FOLDER
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)


def _require_same_interface(model: Path, wanted: ModelConfig) -> None:
    path = model / CONFIG_FILE
    if not path.is_file():
        if model.exists():
            raise RepositoryError(
                f"{model} exists but has no {CONFIG_FILE}, so nothing is known of its callers.",
                hint="Remove that folder or give another --name.",
            )
        return
    # The newest version may be promoted before this one, and then has callers of its own.
    newest = [model / str(version) / CONFIG_FILE for version in versions_of(model)[-1:]]
    present = read_config(next(filter(Path.is_file, newest), path))
    if not wanted.answers_callers_of(present) or not _may_follow(present, wanted):
        raise RepositoryError(
            f"{model.name} at {path} is {_described(present)}; the new version is {_described(wanted)}. "
            "Callers of one cannot call the other.",
            hint="Give the new one another --name.",
            found=_described(present),
            wanted=_described(wanted),
        )


def _may_follow(present: ModelConfig, wanted: ModelConfig) -> bool:
    """A text-level model may change from a stage to an ensemble; a plain engine is called by its backend's name."""
    return present.backend == wanted.backend or bool(present.task and wanted.task)


def _described(config: ModelConfig) -> str:
    def shapes(tensors: tuple[TensorConfig, ...]) -> str:
        return ", ".join(f"{tensor.name} {list(tensor.dims)}" for tensor in tensors)

    return f"{config.task} on {config.backend} ({shapes(config.inputs)} -> {shapes(config.outputs)})".lstrip()


def _next_version(repository: Path, name: str) -> int:
    """One number for all stages: higher than every version that any of them has."""
    models = [name, *(tensor_stage_name(name, backend) for backend in DEFAULT_FILE)]
    return 1 + max((version for model in models for version in versions_of(repository / model)), default=0)


@contextlib.contextmanager
def _writable(repository: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise UnavailableError(
                f"No space left for the repository {repository}.", hint="Free some disk space and run again."
            ) from error
        raise UsageError(
            f"The repository {repository} cannot be written: {error.strerror} ({error.filename}).",
            hint="Give a folder you may write to with -o.",
        ) from error
