"""The versions of a model in a repository: which exist, which is served, and how that changes.

Nothing here talks to a server.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError as SchemaError

from trimaran.core.config_pbtxt import CONFIG_FILE, read_config, write_config
from trimaran.core.errors import UsageError
from trimaran.core.model_config import ModelConfig
from trimaran.core.repository import model_folders, stages_of, versions_of
from trimaran.core.spec import Frozen
from trimaran.core.store import locked, temporary_sibling, write_atomically

HISTORY_FILE = "promotions.json"


class Promotion(Frozen):
    version: int
    # In ISO 8601; empty for the version that was served before the first promotion.
    at: str


class History(Frozen):
    """Promotions in order, the latest last."""

    promotions: tuple[Promotion, ...] = ()


class ModelVersions(Frozen):
    name: str
    # Empty for a model that is not called with text.
    task: str
    versions: tuple[int, ...]
    served: tuple[int, ...]
    # Whether the configuration names what is served; in repositories of before, the newest is.
    pinned: bool
    # What was served before the latest promotion.
    previous: int | None
    # Versions that were laid out without a proof.
    unproven: tuple[int, ...] = ()


def list_models(repository: Path) -> tuple[ModelVersions, ...]:
    """Raises RepositoryError for a configuration that cannot be read."""
    return tuple(map(_versions_of_model, model_folders(repository)))


def unproven_served(repository: Path) -> tuple[str, ...]:
    """The models that serve an unproven version, each with its version, such as `m version 2`."""
    return tuple(
        f"{model.name} version {version}"
        for model in list_models(repository)
        if model.task
        for version in model.served
        if version in model.unproven
    )


def model_versions(repository: Path, name: str) -> ModelVersions:
    model = repository / name
    if not (model / CONFIG_FILE).is_file():
        known = ", ".join(folder.name for folder in model_folders(repository))
        raise UsageError(f"{repository} has no model {name!r}.", hint=f"There are: {known or 'none'}.")
    return _versions_of_model(model)


def pin(repository: Path, name: str, version: int, *, beside: bool = True) -> dict[Path, str]:
    """Makes the configurations of the model, and of its stages `beside` it, serve `version`.

    Returns the previous text of each configuration, for `restore`. Each version keeps the configuration that it was
    published with, so a rollback needs no guess.
    """
    _require_version(model_versions(repository, name), version)
    return _serve(_with_stages(repository, name, version) if beside else [repository / name], version)


def add_beside(repository: Path, name: str, version: int) -> dict[Path, str]:
    """Makes the stages of `name` serve `version` in addition to what they serve now; returns what `pin` does.

    A version of `name` calls the same version of its stages, so during a switch both versions must be loaded.
    """
    return _serve(_with_stages(repository, name, version)[:-1], version, keep=True)


def models_beside(repository: Path, name: str, version: int) -> tuple[str, ...]:
    """The stages that were made with this version of `name`."""
    return tuple(model.name for model in _with_stages(repository, name, version)[:-1])


def _serve(models: list[Path], version: int, *, keep: bool = False) -> dict[Path, str]:
    """With `keep`, what is served now stays served."""
    before: dict[Path, str] = {}
    for model in models:
        with locked(model.parent):
            path = model / CONFIG_FILE
            before[path] = path.read_text(encoding="utf-8")
            served = {version, *(read_config(path).serves(versions_of(model)) if keep else ())}
            published = read_config(model / str(version) / CONFIG_FILE)
            write_config(path, serving_only(published, tuple(sorted(served))))
    return before


def serving_only(config: ModelConfig, versions: tuple[int, ...]) -> ModelConfig:
    """The configuration with these versions named as the ones to serve. Every server and every reload follows it."""
    return ModelConfig.model_validate({**dict(config), "latest_versions": 1, "served_versions": versions})


def restore(before: dict[Path, str]) -> None:
    for path, text in before.items():
        write_atomically(path, text)


def remember(repository: Path, name: str, served_before: tuple[int, ...], version: int) -> None:
    """Records a promotion, so that it can be rolled back."""
    model = repository / name
    history = _history(model).promotions or tuple(Promotion(version=old, at="") for old in served_before[-1:])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    _write_history(model, (*history, Promotion(version=version, at=now)))


def forget_last(repository: Path, name: str) -> None:
    """Removes the latest promotion from the history: it has been rolled back."""
    model = repository / name
    _write_history(model, _history(model).promotions[:-1])


def remove(repository: Path, name: str, version: int) -> tuple[Path, ...]:
    """Removes a version of the model and of its stages; returns the removed folders.

    Raises UsageError for a version that is served.
    """
    model = model_versions(repository, name)
    _require_version(model, version)
    if version in model.served:
        raise UsageError(
            f"Version {version} of {name} is the one that is served.",
            hint="Promote another version first, or remove the model's folder when nobody calls it any more.",
        )
    removed = []
    with locked(repository):
        for folder in _with_stages(repository, name, version):
            # Renamed first: a half-removed version must not look like a version.
            with temporary_sibling(repository / name) as scratch:
                (folder / str(version)).rename(scratch / "version")
                shutil.rmtree(scratch)
            removed.append(folder / str(version))
    return tuple(removed)


def _versions_of_model(model: Path) -> ModelVersions:
    config = read_config(model / CONFIG_FILE)
    versions = versions_of(model)
    promotions = _history(model).promotions
    return ModelVersions(
        name=model.name,
        task=config.task,
        versions=versions,
        served=config.serves(versions),
        pinned=bool(config.served_versions),
        previous=promotions[-2].version if len(promotions) > 1 else None,
        unproven=tuple(version for version in versions if _is_unproven(model / str(version) / CONFIG_FILE)),
    )


def _is_unproven(published: Path) -> bool:
    """By the configuration that a version was published with. One that came from elsewhere has none."""
    return published.is_file() and read_config(published).unproven


def _with_stages(repository: Path, name: str, version: int) -> list[Path]:
    """The stages of the model that have this version, and the model itself last."""
    stages = (stage.folder for stage in stages_of(repository, name))
    return [*(folder for folder in stages if (folder / str(version) / CONFIG_FILE).is_file()), repository / name]


def _require_version(model: ModelVersions, version: int) -> None:
    if version not in model.versions:
        known = ", ".join(map(str, model.versions)) or "none"
        raise UsageError(f"{model.name} has no version {version}.", hint=f"There are: {known}.")


def _history(model: Path) -> History:
    try:
        return History.model_validate_json((model / HISTORY_FILE).read_bytes())
    except (OSError, SchemaError):
        return History()


def _write_history(model: Path, promotions: tuple[Promotion, ...]) -> None:
    write_atomically(model / HISTORY_FILE, History(promotions=promotions).model_dump_json(indent=2) + "\n")
