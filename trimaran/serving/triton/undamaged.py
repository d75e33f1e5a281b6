"""Which models of a repository may be loaded: undamaged, and proven with the instructions of this CPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trimaran.core.digests import require_undamaged
from trimaran.core.errors import IntegrityError
from trimaran.core.proven_here import require_proof_here
from trimaran.core.repository import RepositoryModel, models_in, stages_of


def require_loadable(repository: Path, name: str) -> None:
    """Raises IntegrityError if a served version of the model, or of a model that it calls, is damaged, or if its INT8
    proof was made with other instructions than this CPU has.
    """
    for model in models_in(repository):
        if model.name in (name, *_called(repository, name)) and model.config is not None:
            for version in model.served:
                require_undamaged(model.folder / str(version), model.config)
                require_proof_here(model.folder / str(version))


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
