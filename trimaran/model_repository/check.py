"""Every problem of a model repository at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.errors import RepositoryError
from trimaran.core.model_config import ModelConfig
from trimaran.core.repository import versions_of
from trimaran.model_repository.check_ensemble import ensemble_problems
from trimaran.model_repository.check_version import version_problems
from trimaran.model_repository.problem import Problem, missing, problem
from trimaran.model_repository.stages import DEFAULT_FILE
from trimaran.model_repository.warmups import WARMUP_FOLDER

__all__ = ["Problem", "problems", "problems_of_version", "require_sound"]
BACKENDS = ("python", *DEFAULT_FILE)


def problems(repository: Path) -> tuple[Problem, ...]:
    """What would keep Triton from serving this repository, or make it serve something that was not proven."""
    folders = sorted(path for path in repository.iterdir() if path.is_dir()) if repository.is_dir() else []
    if all(folder.name.startswith(".") for folder in folders):
        return (problem("no-models", repository, "wanted model folders, found none."),)
    read = {folder: _config_of(folder) for folder in folders}
    configs = {folder.name: config for folder, config in read.items() if isinstance(config, ModelConfig)}
    return tuple(
        item
        for folder, config in read.items()
        for item in ([config] if isinstance(config, Problem) else _model_problems(folder, config, configs))
    )


def problems_of_version(model: Path, version: int) -> tuple[Problem, ...]:
    """What would keep this version from being served, by the configuration that it was published with."""
    path = model / str(version) / CONFIG_FILE
    config = _read(path)
    return (config,) if isinstance(config, Problem) else tuple(version_problems(path.parent, config, path, served=True))


def require_sound(repository: Path) -> None:
    """Raises RepositoryError with every problem, if there is one."""
    if present := problems(repository):
        message = f"{repository} has {len(present)} problem(s): " + "; ".join(map(str, present))
        raise RepositoryError(message, problems=present)


def _config_of(folder: Path) -> ModelConfig | Problem:
    if folder.name.startswith("."):
        message = "is what an interrupted run left behind, and Triton takes every folder for a model."
        return problem("unfinished", folder, message)
    path = folder / CONFIG_FILE
    return _read(path) if path.is_file() else problem("config-missing", folder, f"wanted {CONFIG_FILE}, found none.")


def _read(path: Path) -> ModelConfig | Problem:
    try:
        return read_config(path)
    except RepositoryError as error:
        return problem("config-unreadable", path, error.message.removeprefix(f"{path} "))


def _model_problems(folder: Path, config: ModelConfig, configs: Mapping[str, ModelConfig]) -> Iterator[Problem]:
    path = folder / CONFIG_FILE
    if config.name and config.name != folder.name:
        message = f"names the model {config.name!r}, found in a folder named {folder.name!r}."
        yield problem("name-mismatch", path, message)
    if not config.ensemble and config.backend not in BACKENDS:
        yield problem("unknown-backend", path, f"wanted one of {', '.join(BACKENDS)}, found {config.backend!r}.")
    for name in sorted({item.file for warmup in config.warmups for item in warmup.inputs if item.file}):
        if not (folder / WARMUP_FOLDER / name).is_file():
            yield missing(folder / WARMUP_FOLDER / name, "the warm-up of the configuration reads it.")
    if config.ensemble:
        yield from ensemble_problems(path, config, configs)
    versions = versions_of(folder)
    if not versions:
        yield problem("version-missing", folder, "wanted a version folder such as 1, found none.")
    elif absent := sorted(set(config.served_versions) - set(versions)):
        present = ", ".join(map(str, versions)) or "none"
        yield problem("version-gap", path, f"serves version {', '.join(map(str, absent))}, found {present}.")
    served = config.serves(versions)
    for version in versions:
        yield from version_problems(folder / str(version), config, path, served=version in served)
