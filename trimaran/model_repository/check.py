"""Every problem of a model repository at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trimaran.core.config_pbtxt import config_from_pbtxt
from trimaran.core.errors import RepositoryError
from trimaran.core.model_config import ModelConfig
from trimaran.model_repository.check_ensemble import of_ensemble
from trimaran.model_repository.check_version import of_version
from trimaran.model_repository.layout import CONFIG_FILE, versions_of
from trimaran.model_repository.problem import LAY_OUT_AGAIN, Problem, missing
from trimaran.model_repository.stages import DEFAULT_FILE

__all__ = ["Problem", "problems", "problems_of_version", "require_sound"]
BACKENDS = ("python", *DEFAULT_FILE)


def problems(repository: Path) -> tuple[Problem, ...]:
    """What would keep Triton from serving this repository, or make it serve something else than was proven."""
    folders = sorted(path for path in repository.iterdir() if path.is_dir()) if repository.is_dir() else []
    if not any(not folder.name.startswith(".") for folder in folders):
        message = "wanted model folders, found none."
        return (Problem(code="no-models", place=repository, message=message, remedy="Run `trimaran deploy` first."),)
    read = {folder.name: _read(folder) for folder in folders}
    models = {name: config for name, config in read.items() if isinstance(config, ModelConfig)}
    found: list[Problem] = []
    for folder in folders:
        config = read[folder.name]
        found += [config] if isinstance(config, Problem) else _of_model(folder, config, models)
    return tuple(found)


def problems_of_version(model: Path, version: int) -> tuple[Problem, ...]:
    """What would keep this version from being served, by the configuration that it was published with."""
    path = model / str(version) / CONFIG_FILE
    try:
        config = config_from_pbtxt(path.read_text(encoding="utf-8"))
    except (OSError, RepositoryError, UnicodeDecodeError) as error:
        message = getattr(error, "message", str(error))
        return (Problem(code="config-unreadable", place=path, message=message, remedy=LAY_OUT_AGAIN),)
    return tuple(of_version(path.parent, config, place=path, served=True))


def require_sound(repository: Path) -> None:
    """Raises RepositoryError with every problem, if there is one."""
    if found := problems(repository):
        raise RepositoryError(
            f"{repository} has {len(found)} problem(s): " + "; ".join(map(str, found)), problems=found
        )


def _read(folder: Path) -> ModelConfig | Problem:
    if folder.name.startswith("."):
        return Problem(
            code="unfinished",
            place=folder,
            message="is what an interrupted run left behind, and Triton takes every folder for a model.",
            remedy="Remove it; the next `trimaran deploy` or `serve` does so too.",
        )
    path = folder / CONFIG_FILE
    if not path.is_file():
        message = f"wanted {CONFIG_FILE}, found none."
        return Problem(code="config-missing", place=folder, message=message, remedy="Lay the model out again.")
    try:
        return config_from_pbtxt(path.read_text(encoding="utf-8"))
    except (RepositoryError, UnicodeDecodeError) as error:
        message = getattr(error, "message", str(error))
        return Problem(code="config-unreadable", place=path, message=message, remedy="Lay the model out again.")


def _of_model(folder: Path, config: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[Problem]:
    path = folder / CONFIG_FILE
    yield from _of_config(folder, path, config)
    if config.ensemble:
        yield from of_ensemble(path, config, models)
    versions = versions_of(folder)
    if not versions:
        message = "wanted a version folder such as 1, found none."
        yield Problem(code="version-missing", place=folder, message=message, remedy="Lay the model out again.")
    if gone := sorted(set(config.served_versions) - set(versions)):
        yield Problem(
            code="version-gap",
            place=path,
            message=f"serves version {', '.join(map(str, gone))}, found {', '.join(map(str, versions)) or 'none'}.",
            remedy=f"`trimaran promote {folder.name} VERSION` chooses one that is there.",
        )
    served = config.serves(versions)
    for version in versions:
        yield from of_version(folder / str(version), config, place=path, served=version in served)


def _of_config(folder: Path, path: Path, config: ModelConfig) -> Iterator[Problem]:
    if config.name and config.name != folder.name:
        yield Problem(
            code="name-mismatch",
            place=path,
            message=f"names the model {config.name!r}, found in a folder named {folder.name!r}.",
            remedy="Rename the folder, or lay the model out under the name you want.",
        )
    if not config.ensemble and config.backend not in BACKENDS:
        yield Problem(
            code="unknown-backend",
            place=path,
            message=f"wanted one of {', '.join(BACKENDS)}, found {config.backend!r}.",
            remedy="Correct the backend, or serve this model elsewhere.",
        )
    for name in sorted({item.file for warmup in config.warmups for item in warmup.inputs if item.file}):
        if not (folder / "warmup" / name).is_file():
            yield missing(folder / "warmup" / name, "the warm-up of the configuration reads it.")
