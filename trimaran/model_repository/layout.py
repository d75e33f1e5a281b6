"""An artifact as versions of Triton models in a repository, each published whole and none overwritten."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trimaran.runtime
from trimaran.core.artifact import MANIFEST, Artifact, verify_files
from trimaran.core.errors import RepositoryError, UnavailableError, UsageError
from trimaran.core.spec import Frozen, Rows
from trimaran.core.store import locked, publish, temporary_sibling, write_atomically
from trimaran.judging.golden import GOLDEN_FILE, Golden
from trimaran.model_repository.model_config import ModelConfig, Tensor
from trimaran.model_repository.pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.model_repository.stages import (
    DEFAULT_FILE,
    SERVING_FILE,
    TEXT_FILES,
    Serving,
    engine_model,
    ensemble,
    finished_in_graph,
    served_names,
    tensor_stage,
    tensor_stage_name,
    text_stage,
    tokenizer_stage,
)
from trimaran.model_repository.warmups import warmup_files

CONFIG_FILE = "config.pbtxt"
REPORT_FILE = "report.json"
TEXT_STAGE = "triton_text_model.py"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_RUNTIME = Path(trimaran.runtime.__file__).parent


class Deployment(Frozen):
    """`name` is the model to call; `models` are all that this version added to."""

    repository: Path
    name: str
    version: int
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
) -> Deployment:
    """Adds the artifact as the next version of `name`, with the plain tensor model beside it.

    `separate` makes the engine a model of its own that `name` calls, and not part of `name`'s process; by default
    that is so where a C++ backend runs it on a GPU.

    Raises RepositoryError when callers of the versions already there would not be served by this one.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a model: wanted letters, digits, '.', '_' and '-', found something else.",
            hint="Give another --name.",
        )
    verify_files(artifact)
    parts = _parts(artifact, name, rows=rows, threads=threads, separate=separate)
    repository = repository.absolute()
    # One layout at a time, so that two never take the same version number.
    with _writable(repository), locked(repository):
        for part in reversed(parts):
            _require_same_interface(repository / part.config.name, part.config)
        version = _next_version(repository, name)
        # The model to call comes last: when it is there, so is all that it needs.
        for part in parts:
            with _staged(repository, _of_one_version(part.config, version), version, artifact) as folder:
                _fill(folder, artifact, part)
                if part is parts[-1]:
                    _add_proofs(folder, report, golden)
    models = tuple(part.config.name for part in reversed(parts))
    return Deployment(repository=repository, name=name, version=version, models=models)


@dataclass(frozen=True)
class _Part:
    """One model of a layout: its configuration and settings, and what it takes of `runtime` and of the artifact."""

    config: ModelConfig
    serving: Serving
    stage: str = ""
    imports: tuple[str, ...] = ()
    weights: bool = False
    tokenizer: bool = False


def _parts(artifact: Artifact, name: str, *, rows: Rows, threads: int, separate: bool | None) -> list[_Part]:
    """In the order in which they are published. Why which layout: docs/decisions/0003."""
    apart = engine_model(artifact).separate if separate is None else separate
    serving = Serving.of(artifact, rows=rows, threads=threads)
    joined = apart and finished_in_graph(artifact, rows)
    tensor = tensor_stage(name, artifact, rows=rows, threads=threads, on_demand=not apart or joined)
    engine = _Part(tensor, serving, weights=True)
    if joined:
        tokenizer = tokenizer_stage(name, artifact)
        return [
            engine,
            _Part(tokenizer, serving, stage="triton_tokenizer_model.py", imports=("text.py",), tokenizer=True),
            _Part(ensemble(name, artifact), serving),
        ]
    if apart:
        serving = serving.calling(tensor.name, artifact.signature.output_names)
    return [
        engine,
        _Part(
            text_stage(name, artifact, calls=apart),
            serving,
            stage=TEXT_STAGE,
            imports=(*TEXT_FILES, f"{serving.backend}_engine.py"),
            weights=not apart,
            tokenizer=True,
        ),
    ]


def _of_one_version(config: ModelConfig, version: int) -> ModelConfig:
    """An ensemble calls the version of each step that it was made with: while versions change, both are there."""
    steps = tuple(step.model_copy(update={"version": version}) for step in config.steps)
    return config.model_copy(update={"steps": steps})


def copy_version(model: Path, version: int, target: Path) -> None:
    """One version of a model by itself, as links: what a trial serves."""
    for path in (model / str(version)).rglob("*"):
        if path.is_file():
            _link(path, target / str(version) / path.relative_to(model / str(version)))
    for path in (model / "warmup").glob("*"):
        _link(path, target / "warmup" / path.name)
    shutil.copyfile(model / str(version) / CONFIG_FILE, target / CONFIG_FILE)


def stage_is_current(folder: Path, serving: Serving) -> bool:
    """Whether a version's text stage is the one that this trimaran lays out; an older one may not know a setting."""
    sources = {"model.py": TEXT_STAGE, **{name: name for name in (*TEXT_FILES, f"{serving.backend}_engine.py")}}
    return all(
        (folder / name).is_file() and (folder / name).read_bytes() == (_RUNTIME / source).read_bytes()
        for name, source in sources.items()
    )


def versions_of(model: Path) -> tuple[int, ...]:
    """The version folders of a model, ascending."""
    if not model.is_dir():
        return ()
    return tuple(sorted(int(path.name) for path in model.iterdir() if path.is_dir() and path.name.isdecimal()))


def _fill(folder: Path, artifact: Artifact, part: _Part) -> None:
    """Self-contained: it imports nothing of trimaran, so that the official container needs none of it."""
    for name, served in served_names(artifact).items():
        if part.tokenizer if name.startswith("tokenizer") else part.weights:
            _link(artifact.directory / name, folder / served)
    if part.stage:
        shutil.copyfile(_RUNTIME / part.stage, folder / "model.py")
    for source in part.imports:
        shutil.copyfile(_RUNTIME / source, folder / source)
    (folder / SERVING_FILE).write_text(part.serving.to_json(), encoding="utf-8")
    shutil.copyfile(artifact.directory / MANIFEST, folder / MANIFEST)


def _add_proofs(folder: Path, report: Path | None, golden: Golden | None) -> None:
    if report is not None:
        shutil.copyfile(report / REPORT_FILE if report.is_dir() else report, folder / REPORT_FILE)
    if golden is not None:
        (folder / GOLDEN_FILE).write_text(golden.to_json(), encoding="utf-8")


@contextlib.contextmanager
def _staged(repository: Path, config: ModelConfig, version: int, artifact: Artifact) -> Iterator[Path]:
    """A folder to fill with the version; published with its configuration when the block ends well.

    Each version keeps the configuration it was published with, so that going back to it needs no guess.
    """
    model = repository / config.name
    pbtxt = pbtxt_from_config(config)
    wanted = {item.file for warmup in config.warmups for item in warmup.inputs if item.file}
    warmups = {name: data for name, data in warmup_files(artifact).items() if name in wanted}
    known = model.is_dir()
    target = model / str(version) if known else model
    with temporary_sibling(target) as folder:
        inner = folder if known else folder / str(version)
        inner.mkdir(parents=True, exist_ok=True)
        yield inner
        (inner / CONFIG_FILE).write_text(pbtxt, encoding="utf-8")
        if not known:
            _write_warmups(folder, warmups)
            (folder / CONFIG_FILE).write_text(pbtxt, encoding="utf-8")
        publish(folder, target)
    if known:
        _write_warmups(model, warmups)
        # What a promotion has chosen stays chosen; `trimaran promote` moves on to the new version.
        if not config_from_pbtxt((model / CONFIG_FILE).read_text(encoding="utf-8")).served_versions:
            write_atomically(model / CONFIG_FILE, pbtxt)


def _write_warmups(model: Path, files: dict[str, bytes]) -> None:
    folder = model / "warmup"
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(data)


def _require_same_interface(model: Path, wanted: ModelConfig) -> None:
    path = model / CONFIG_FILE
    if not path.is_file():
        if model.exists():
            raise RepositoryError(
                f"{model} is there but has no {CONFIG_FILE}, so nothing is known of its callers.",
                hint="Remove that folder or give another --name.",
            )
        return
    found = config_from_pbtxt(path.read_text(encoding="utf-8"))
    if not wanted.answers_callers_of(found) or not _may_follow(found, wanted):
        raise RepositoryError(
            f"{model.name} at {path} is {_described(found)}; the new version is {_described(wanted)}. "
            "Callers of one cannot call the other.",
            hint="Give the new one another --name.",
            found=_described(found),
            wanted=_described(wanted),
        )


def _may_follow(found: ModelConfig, wanted: ModelConfig) -> bool:
    """A text-level model may change how it is made, a stage or an ensemble; a plain engine is called by its backend."""
    return found.backend == wanted.backend or ("task" in found.parameters and "task" in wanted.parameters)


def _described(config: ModelConfig) -> str:
    def shapes(tensors: tuple[Tensor, ...]) -> str:
        return ", ".join(f"{tensor.name} {list(tensor.dims)}" for tensor in tensors)

    task = f"{config.parameters['task']} " if "task" in config.parameters else ""
    return f"{task}on {config.backend} ({shapes(config.inputs)} -> {shapes(config.outputs)})"


def _next_version(repository: Path, name: str) -> int:
    """One number for all stages, beyond every version that any of them has."""
    models = [name, *(tensor_stage_name(name, backend) for backend in DEFAULT_FILE)]
    return 1 + max((version for model in models for version in versions_of(repository / model)), default=0)


def _link(source: Path, target: Path) -> None:
    """A hard link, so that the store, both stages and every version share one copy on disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def _writable(repository: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UnavailableError(
                f"No space left for the repository {repository}.", hint="Free some disk space and run again."
            ) from error
        raise UsageError(
            f"The repository {repository} cannot be written: {error.strerror} ({error.filename}).",
            hint="Give a folder you may write to with -o.",
        ) from error
