"""Which models of a repository may be loaded: undamaged, proven with the CPU's instructions, and not too large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trimaran.core.call_memory import require_memory_here
from trimaran.core.config_pbtxt import CONFIG_FILE, pbtxt_from_config, read_config
from trimaran.core.digests import compile_code, require_undamaged
from trimaran.core.errors import IntegrityError
from trimaran.core.model_config import ModelConfig
from trimaran.core.proven_here import require_proof_here
from trimaran.core.repository import MODEL_NAME, RepositoryModel, models_in, stages_among
from trimaran.core.serving_json import SERVING_FILE
from trimaran.core.signatures import require_signed

MOST_INSTANCES = 256
# What the folder of a model holds beside its versions. Warm-up files are data.
_OF_A_MODEL = {CONFIG_FILE, "warmup", "promotions.json"}


def require_loadable(repository: Path, name: str, trust_key: Path | None = None) -> None:
    """Raises IntegrityError if a served version of the model, or of a model that it calls, is damaged.

    Also raised if its INT8 proof was made with other instructions than this CPU has, or if its longest text would never
    fit into the memory.

    With a `trust_key`, all of it must be signed with that key. Settings that trimaran does not write are refused too:
    they may come from a stranger. What may be loaded is compiled, unless it must be signed.
    """
    _require_loadable(models_in(repository), name, trust_key)


def _require_loadable(models: Sequence[RepositoryModel], name: str, trust_key: Path | None) -> None:
    if not MODEL_NAME.fullmatch(name):
        raise IntegrityError(
            f"{name!r} does not name a model: Triton reads `*` as all models, and other signs as parts of an address.",
            hint="Rename its folder.",
        )
    for model in models:
        if model.name not in (name, *_called(models, name)):
            continue
        if trust_key is not None:
            _require_trusted(model, trust_key)
        if model.config is not None:
            for version in model.served:
                folder = model.folder / str(version)
                require_undamaged(folder, model.config)
                if (folder / SERVING_FILE).is_file():
                    require_proof_here(folder)
                    require_memory_here(folder)
                if trust_key is None:
                    compile_code(folder)
            _require_few_instances(model.name, model.config)


def _require_few_instances(name: str, config: ModelConfig) -> None:
    group = config.instance_group
    if group is not None and group.count + group.spares > MOST_INSTANCES:
        raise IntegrityError(
            f"{name} wants {group.count + group.spares} instances, at most {MOST_INSTANCES} are started.",
            hint="Correct instance_group in its configuration.",
        )


def _require_trusted(model: RepositoryModel, key: Path) -> None:
    """Everything that Triton reads of the model is signed, or follows from what is signed."""
    strangers = [
        path.name
        for path in model.folder.iterdir()
        if path.name not in _OF_A_MODEL and not path.name.isdecimal() and not path.name.startswith(".")
    ]
    if model.config is None or not model.served or strangers:
        reason = f"holds {', '.join(strangers)}" if strangers else "has no configuration that can be read"
        raise IntegrityError(f"{model.folder} {reason}, which is not signed.", path=str(model.folder))
    for version in model.served:
        require_signed(model.folder / str(version), key)
    published = read_config(model.folder / str(model.served[-1]) / CONFIG_FILE)
    expected = published.model_copy(update={"served_versions": model.config.served_versions})
    if pbtxt_from_config(expected) != (model.folder / CONFIG_FILE).read_text(encoding="utf-8"):
        raise IntegrityError(
            f"{model.folder / CONFIG_FILE} differs from the signed configuration of version {model.served[-1]}.",
            hint="`trimaran promote` writes it anew.",
            path=str(model.folder),
        )


def damaged(repository: Path, names: Iterable[str], trust_key: Path | None = None) -> dict[str, IntegrityError]:
    """The models that are not to be loaded, with the reason."""
    errors: dict[str, IntegrityError] = {}
    models = models_in(repository)
    for name in names:
        try:
            _require_loadable(models, name, trust_key)
        except IntegrityError as error:
            errors[name] = error
    return errors


def _called(models: Sequence[RepositoryModel], name: str) -> tuple[str, ...]:
    """The steps of an ensemble, and the engine that a stage calls; not the engine that is loaded only by hand."""
    own = next((model.config for model in models if model.name == name), None)
    steps = {step.model for step in own.steps} if own else set()
    return tuple(stage.name for stage in stages_among(models, name) if _is_called(stage, steps))


def _is_called(stage: RepositoryModel, steps: set[str]) -> bool:
    return stage.name in steps or not stage.on_demand
