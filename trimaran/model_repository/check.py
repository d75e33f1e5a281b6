"""Every problem of a model repository at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimaran.artifact import MANIFEST, Artifact, load_artifact, sha256_of
from trimaran.errors import RepositoryError, TrimaranError
from trimaran.model_repository.layout import CONFIG_FILE, versions_of
from trimaran.model_repository.model_config import ModelConfig, Tensor
from trimaran.model_repository.pbtxt import config_from_pbtxt
from trimaran.model_repository.stages import (
    DEFAULT_FILE,
    SERVING_FILE,
    TEXT_FILES,
    served_names,
    tensor_from_spec,
    text_interface,
)
from trimaran.spec import Frozen

BACKENDS = ("python", *DEFAULT_FILE)
_LAY_OUT_AGAIN = "Remove this version and lay the artifact out again."


class Problem(Frozen):
    """`code` is stable and meant for scripts; `place` is the file or folder to look at."""

    code: str
    place: Path
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code}: {self.place}: {self.message} {self.remedy}"


def problems(repository: Path) -> tuple[Problem, ...]:
    """What would keep Triton from serving this repository, or make it serve something else than was proven."""
    folders = sorted(path for path in repository.iterdir() if path.is_dir()) if repository.is_dir() else []
    if not any(not folder.name.startswith(".") for folder in folders):
        message = "wanted model folders, found none."
        return (Problem(code="no-models", place=repository, message=message, remedy="Run `trimaran deploy` first."),)
    return tuple(problem for folder in folders for problem in _of_model(folder))


def problems_of_version(model: Path, version: int) -> tuple[Problem, ...]:
    """What would keep this version from being served, by the configuration that it was published with."""
    folder = model / str(version)
    try:
        config = config_from_pbtxt((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, RepositoryError, UnicodeDecodeError) as error:
        message = getattr(error, "message", str(error))
        return (Problem(code="config-unreadable", place=folder / CONFIG_FILE, message=message, remedy=_LAY_OUT_AGAIN),)
    return tuple(_of_version(folder, config, served=True))


def require_sound(repository: Path) -> None:
    """Raises RepositoryError with every problem, if there is one."""
    if found := problems(repository):
        raise RepositoryError(
            f"{repository} has {len(found)} problem(s): " + "; ".join(map(str, found)), problems=found
        )


def _of_model(folder: Path) -> Iterator[Problem]:
    if folder.name.startswith("."):
        yield Problem(
            code="unfinished",
            place=folder,
            message="is what an interrupted run left behind, and Triton takes every folder for a model.",
            remedy="Remove it; the next `trimaran deploy` or `serve` does so too.",
        )
        return
    path = folder / CONFIG_FILE
    if not path.is_file():
        message = f"wanted {CONFIG_FILE}, found none."
        yield Problem(code="config-missing", place=folder, message=message, remedy="Lay the model out again.")
        return
    try:
        config = config_from_pbtxt(path.read_text(encoding="utf-8"))
    except (RepositoryError, UnicodeDecodeError) as error:
        message = getattr(error, "message", str(error))
        yield Problem(code="config-unreadable", place=path, message=message, remedy="Lay the model out again.")
        return
    yield from _of_config(folder, path, config)
    versions = versions_of(folder)
    if not versions:
        message = "wanted a version folder such as 1, found none."
        yield Problem(code="version-missing", place=folder, message=message, remedy="Lay the model out again.")
    for version in versions:
        yield from _of_version(folder / str(version), config, served=version in config.serves(versions))


def _of_config(folder: Path, path: Path, config: ModelConfig) -> Iterator[Problem]:
    if config.name and config.name != folder.name:
        yield Problem(
            code="name-mismatch",
            place=path,
            message=f"names the model {config.name!r}, found in a folder named {folder.name!r}.",
            remedy="Rename the folder, or lay the model out under the name you want.",
        )
    if config.backend not in BACKENDS:
        yield Problem(
            code="unknown-backend",
            place=path,
            message=f"wanted one of {', '.join(BACKENDS)}, found {config.backend!r}.",
            remedy="Correct the backend, or serve this model elsewhere.",
        )
    for name in sorted({item.file for warmup in config.warmups for item in warmup.inputs if item.file}):
        if not (folder / "warmup" / name).is_file():
            yield _missing(folder / "warmup" / name, "the warm-up of the configuration reads it.")


def _of_version(folder: Path, config: ModelConfig, *, served: bool) -> Iterator[Problem]:
    entry = "model.py" if config.backend == "python" else config.default_model_filename
    entry = entry or DEFAULT_FILE.get(config.backend, "")
    if entry and not (folder / entry).is_file():
        yield _missing(folder / entry, f"the {config.backend} backend opens it.")
    if not (folder / MANIFEST).is_file():
        return  # a model from elsewhere: nothing was promised of it
    try:
        artifact = load_artifact(folder, verify=False)
        names = served_names(artifact)
    except TrimaranError as error:
        yield Problem(code="manifest-unreadable", place=folder / MANIFEST, message=error.message, remedy=_LAY_OUT_AGAIN)
        return
    yield from _of_files(folder, artifact, names, tensors_only=config.backend != "python", entry=entry)
    if served:
        yield from _of_interface(folder, config, artifact)


def _of_files(
    folder: Path, artifact: Artifact, names: dict[str, str], *, tensors_only: bool, entry: str
) -> Iterator[Problem]:
    own = [SERVING_FILE] if tensors_only else [SERVING_FILE, *TEXT_FILES, f"{artifact.backend}_engine.py"]
    for name in own:
        if not (folder / name).is_file():
            yield _missing(folder / name, "the stage reads it when it starts.")
    for file in artifact.files:
        path = folder / names[file.name]
        if tensors_only and file.name.startswith("tokenizer"):
            continue
        if not path.is_file():
            if path.name != entry:
                yield _missing(path, "the manifest lists it.")
        elif path.stat().st_size != file.size_bytes or sha256_of(path) != file.sha256:
            yield Problem(
                code="digest-mismatch",
                place=path,
                message=f"differs from its manifest (wanted sha256 {file.sha256[:12]}…).",
                remedy=f"It was damaged or edited. {_LAY_OUT_AGAIN}",
            )


def _of_interface(folder: Path, config: ModelConfig, artifact: Artifact) -> Iterator[Problem]:
    if config.backend == "python":
        inputs, outputs = text_interface(artifact)
    else:
        inputs = tuple(tensor_from_spec(spec) for spec in artifact.signature.inputs)
        outputs = tuple(tensor_from_spec(spec) for spec in artifact.signature.outputs)
    for wanted, found in (inputs, config.inputs), (outputs, config.outputs):
        if wanted != found:
            yield Problem(
                code="dims-mismatch",
                place=folder.parent / CONFIG_FILE,
                message=f"the artifact's signature wants {_listed(wanted)}, found {_listed(found)}.",
                remedy="Lay the artifact out under another name.",
            )
    logits = [spec.dims[-1] for spec in artifact.signature.outputs if spec.name == "logits"]
    if logits and logits[0] != len(artifact.labels):
        yield Problem(
            code="labels-mismatch",
            place=folder / MANIFEST,
            message=f"wanted one label for each of {logits[0]} logits, found {len(artifact.labels)}.",
            remedy="Export the model again with a config whose id2label is complete.",
        )


def _missing(path: Path, reason: str) -> Problem:
    return Problem(
        code="file-missing", place=path, message=f"wanted this file, found none: {reason}", remedy=_LAY_OUT_AGAIN
    )


def _listed(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{item.name} {item.data_type} {list(item.dims)}" for item in tensors) or "nothing"
