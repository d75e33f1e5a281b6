"""Which models of a repository may be loaded: those whose files are as they were published."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trimaran.core.digests import require_undamaged
from trimaran.core.errors import IntegrityError
from trimaran.core.model_config import ModelConfig
from trimaran.core.repository import RepositoryModel, models_in, stages_of
from trimaran.core.serving_json import SERVING_FILE, read_serving

MOST_INSTANCES = 256


def require_loadable(repository: Path, name: str) -> None:
    """Raises IntegrityError if a served version of the model, or of a model that it calls, is damaged.

    Settings that trimaran does not write are refused too: they may come from a stranger.
    """
    for model in models_in(repository):
        if model.name in (name, *_called(repository, name)) and model.config is not None:
            for version in model.served:
                folder = model.folder / str(version)
                require_undamaged(folder, model.config)
                if (folder / SERVING_FILE).is_file():
                    read_serving(folder)
            _require_few_instances(model.name, model.config)


def _require_few_instances(name: str, config: ModelConfig) -> None:
    group = config.instance_group
    if group is not None and group.count + group.spares > MOST_INSTANCES:
        raise IntegrityError(
            f"{name} wants {group.count + group.spares} instances, at most {MOST_INSTANCES} are started.",
            hint="Correct instance_group in its configuration.",
        )


def damaged(repository: Path, names: Iterable[str]) -> dict[str, IntegrityError]:
    """The models that are not to be loaded, with the reason."""
    errors: dict[str, IntegrityError] = {}
    for name in names:
        try:
            require_loadable(repository, name)
        except IntegrityError as error:
            errors[name] = error
    return errors


def _called(repository: Path, name: str) -> tuple[str, ...]:
    """The steps of an ensemble, and the engine that a stage calls; not the engine that is loaded only by hand."""
    own = next((model.config for model in models_in(repository) if model.name == name), None)
    steps = {step.model for step in own.steps} if own else set()
    return tuple(stage.name for stage in stages_of(repository, name) if _is_called(stage, steps))


def _is_called(stage: RepositoryModel, steps: set[str]) -> bool:
    return stage.name in steps or not stage.on_demand
