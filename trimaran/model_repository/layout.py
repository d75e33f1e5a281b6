"""An artifact as versions of Triton models in a repository, each published whole and none overwritten."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import trimaran.runtime
from trimaran.artifact import MANIFEST, Artifact, verify_files
from trimaran.errors import RepositoryError, UnavailableError, UsageError
from trimaran.golden import GOLDEN_FILE, Golden
from trimaran.model_repository.model_config import ModelConfig, Tensor
from trimaran.model_repository.pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.model_repository.stages import (
    DEFAULT_FILE,
    SERVING_FILE,
    TEXT_FILES,
    Serving,
    served_names,
    tensor_stage,
    tensor_stage_name,
    text_stage,
    warmup_files,
)
from trimaran.spec import Frozen, Rows
from trimaran.store import publish, temporary_sibling, write_atomically

CONFIG_FILE = "config.pbtxt"
REPORT_FILE = "report.json"
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
) -> Deployment:
    """Adds the artifact as the next version of `name`, with the plain tensor model beside it.

    Raises RepositoryError when callers of the versions already there would not be served by this one.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a model: wanted letters, digits, '.', '_' and '-', found something else.",
            hint="Give another --name.",
        )
    if artifact.backend not in DEFAULT_FILE:
        raise UsageError(
            f"Triton serves artifacts of {' and '.join(DEFAULT_FILE)} here, and this one is of {artifact.backend}.",
            hint="`trimaran quantize` makes one that can be served.",
        )
    verify_files(artifact)
    text = text_stage(name, artifact)
    tensor = tensor_stage(name, artifact, rows=rows, threads=threads)
    serving = Serving.of(artifact, rows=rows, threads=threads).to_json()
    repository = repository.absolute()
    with _writable(repository), repository_lock(repository):
        for config in (text, tensor):
            _require_same_interface(repository / config.name, config)
        version = _next_version(repository, name)
        with _staged(repository, tensor, version, artifact) as folder:
            _fill_tensor(folder, artifact, serving)
        with _staged(repository, text, version, artifact) as folder:
            _fill_text(folder, artifact, serving, report, golden)
    return Deployment(repository=repository, name=name, version=version, models=(text.name, tensor.name))


def copy_version(model: Path, version: int, target: Path) -> None:
    """One version of a model by itself, as links: what a trial serves."""
    for path in (model / str(version)).rglob("*"):
        if path.is_file():
            _link(path, target / str(version) / path.relative_to(model / str(version)))
    for path in (model / "warmup").glob("*"):
        _link(path, target / "warmup" / path.name)
    shutil.copyfile(model / str(version) / CONFIG_FILE, target / CONFIG_FILE)


def versions_of(model: Path) -> tuple[int, ...]:
    """The version folders of a model, ascending."""
    if not model.is_dir():
        return ()
    return tuple(sorted(int(path.name) for path in model.iterdir() if path.is_dir() and path.name.isdecimal()))


def _fill_tensor(folder: Path, artifact: Artifact, serving: str) -> None:
    for name, served in served_names(artifact).items():
        if not name.startswith("tokenizer"):
            _link(artifact.directory / name, folder / served)
    (folder / SERVING_FILE).write_text(serving, encoding="utf-8")
    shutil.copyfile(artifact.directory / MANIFEST, folder / MANIFEST)


def _fill_text(folder: Path, artifact: Artifact, serving: str, report: Path | None, golden: Golden | None) -> None:
    """Self-contained: it imports nothing of trimaran, so that the official container needs none of it."""
    for name, served in served_names(artifact).items():
        _link(artifact.directory / name, folder / served)
    shutil.copyfile(_RUNTIME / "triton_text_model.py", folder / "model.py")
    for source in (*TEXT_FILES, f"{artifact.backend}_engine.py"):
        shutil.copyfile(_RUNTIME / source, folder / source)
    (folder / SERVING_FILE).write_text(serving, encoding="utf-8")
    shutil.copyfile(artifact.directory / MANIFEST, folder / MANIFEST)
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
    if (found.backend, found.interface) != (wanted.backend, wanted.interface):
        raise RepositoryError(
            f"{model.name} at {path} is {_described(found)}; the new version is {_described(wanted)}. "
            "Callers of one cannot call the other.",
            hint="Give the new one another --name.",
            found=_described(found),
            wanted=_described(wanted),
        )


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
def repository_lock(repository: Path) -> Iterator[None]:
    """One layout at a time, so that two never take the same version number. The lock ends with the process."""
    repository.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(repository, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


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
