"""The versions of a model: which there are, which is served, and how that changes. Nothing here talks to a server."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError as SchemaError

from trimaran.core.config_pbtxt import config_from_pbtxt, pbtxt_from_config
from trimaran.core.errors import RepositoryError, UsageError
from trimaran.core.model_config import ModelConfig
from trimaran.core.spec import Frozen
from trimaran.core.store import locked, temporary_sibling, write_atomically
from trimaran.model_repository.layout import CONFIG_FILE, versions_of

HISTORY_FILE = "promotions.json"


class Promotion(Frozen):
    version: int
    at: str


class History(Frozen):
    """Promotions in order, the latest last."""

    promotions: tuple[Promotion, ...] = ()


class ModelVersions(Frozen):
    """`pinned` when a promotion chose what is served; otherwise it is the newest."""

    name: str
    task: str
    versions: tuple[int, ...]
    served: tuple[int, ...]
    pinned: bool
    previous: int | None


def list_models(repository: Path) -> tuple[ModelVersions, ...]:
    """Every model of the repository whose configuration can be read."""
    return tuple(_facts(path.parent) for path in sorted(repository.glob(f"*/{CONFIG_FILE}")))


def model_versions(repository: Path, name: str) -> ModelVersions:
    model = repository / name
    if not (model / CONFIG_FILE).is_file():
        known = ", ".join(path.parent.name for path in sorted(repository.glob(f"*/{CONFIG_FILE}")))
        raise UsageError(f"{repository} has no model {name!r}.", hint=f"There are: {known or 'none'}.")
    return _facts(model)


def pin(repository: Path, name: str, version: int, *, beside: bool = True) -> dict[Path, str]:
    """Makes `version` what the configurations of the model, and of the models `beside` it, serve.

    Returns what each configuration said before, for `restore`. Each version has kept the configuration that it was
    published with, so going to one needs no guess.
    """
    facts = model_versions(repository, name)
    if version not in facts.versions:
        raise UsageError(f"{name} has no version {version}.", hint=f"There are: {_listed(facts.versions)}.")
    return _serve(_beside(repository, name, version) if beside else [repository / name], version)


def add_beside(repository: Path, name: str, version: int) -> dict[Path, str]:
    """Makes the models beside `name` serve `version` too, with what they serve now; returns what `pin` does.

    A version of `name` calls the same version of them, so both must be there while `name` goes from one to the other.
    """
    return _serve([model for model in _beside(repository, name, version) if model.name != name], version, others=True)


def models_beside(repository: Path, name: str, version: int) -> tuple[str, ...]:
    """The models that were made with this version of `name`."""
    return tuple(model.name for model in _beside(repository, name, version) if model.name != name)


def _serve(models: list[Path], version: int, *, others: bool = False) -> dict[Path, str]:
    before: dict[Path, str] = {}
    for model in models:
        with locked(model.parent):
            path = model / CONFIG_FILE
            before[path] = path.read_text(encoding="utf-8")
            served = {version, *(_config(path).serves(versions_of(model)) if others else ())}
            config = dict(_config(model / str(version) / CONFIG_FILE))
            pinned = ModelConfig.model_validate(
                {**config, "latest_versions": 1, "served_versions": tuple(sorted(served))}
            )
            write_atomically(path, pbtxt_from_config(pinned))
    return before


def restore(before: dict[Path, str]) -> None:
    for path, text in before.items():
        write_atomically(path, text)


def remember(repository: Path, name: str, served_before: tuple[int, ...], version: int) -> None:
    """Notes a promotion that has happened, so that it can be rolled back."""
    model = repository / name
    history = _history(model).promotions
    if not history:
        history = tuple(Promotion(version=old, at="") for old in served_before[-1:])
    entry = Promotion(version=version, at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_atomically(model / HISTORY_FILE, History(promotions=(*history, entry)).model_dump_json(indent=2) + "\n")


def forget_last(repository: Path, name: str) -> None:
    """Takes the latest promotion out of the history: it has been rolled back."""
    model = repository / name
    history = History(promotions=_history(model).promotions[:-1])
    write_atomically(model / HISTORY_FILE, history.model_dump_json(indent=2) + "\n")


def remove(repository: Path, name: str, version: int) -> tuple[Path, ...]:
    """Removes a version of the model and of the models beside it. One that is served stays; promote another first."""
    facts = model_versions(repository, name)
    if version not in facts.versions:
        raise UsageError(f"{name} has no version {version}.", hint=f"There are: {_listed(facts.versions)}.")
    if version in facts.served:
        raise UsageError(
            f"Version {version} of {name} is the one that is served.",
            hint="Promote another version first, or remove the model's folder when nobody calls it any more.",
        )
    gone = []
    with locked(repository):
        for model in _beside(repository, name, version):
            # Renamed first: a half-removed version must not look like one.
            with temporary_sibling(repository / name) as folder:
                (model / str(version)).rename(folder / "version")
                shutil.rmtree(folder)
            gone.append(model / str(version))
    return tuple(gone)


def _facts(model: Path) -> ModelVersions:
    config = _config(model / CONFIG_FILE)
    versions = versions_of(model)
    promotions = _history(model).promotions
    return ModelVersions(
        name=model.name,
        task=config.parameters.get("task", ""),
        versions=versions,
        served=config.serves(versions),
        pinned=bool(config.served_versions),
        previous=promotions[-2].version if len(promotions) > 1 else None,
    )


def _beside(repository: Path, name: str, version: int) -> list[Path]:
    """The model, and those made with it: same version, and named after it."""
    names = [path.parent.name for path in repository.glob(f"{name}_*/{CONFIG_FILE}")]
    own = [repository / other for other in sorted(names) if _belongs(repository / other, version)]
    return [*own, repository / name]


def _belongs(model: Path, version: int) -> bool:
    path = model / str(version) / CONFIG_FILE
    return path.is_file() and not _config(path).parameters.get("task")


def _config(path: Path) -> ModelConfig:
    try:
        return config_from_pbtxt(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RepositoryError(
            f"{path} cannot be read: {error.strerror}.", hint="`trimaran repository check` says more."
        ) from error


def _history(model: Path) -> History:
    try:
        return History.model_validate_json((model / HISTORY_FILE).read_bytes())
    except (OSError, SchemaError):
        return History()


def _listed(versions: tuple[int, ...]) -> str:
    return ", ".join(map(str, versions)) or "none"
