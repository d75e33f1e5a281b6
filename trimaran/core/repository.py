"""A model repository on disk: its models, their versions, and which of them Triton serves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.core.config_pbtxt import CONFIG_FILE, read_config
from trimaran.core.errors import RepositoryError
from trimaran.core.model_config import ModelConfig

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class RepositoryModel:
    """One model folder."""

    folder: Path
    # None when the configuration cannot be read.
    config: ModelConfig | None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def task(self) -> str:
        """Empty for a model that is not called with text."""
        return self.config.task if self.config else ""

    @property
    def on_demand(self) -> bool:
        return self.config is not None and self.config.on_demand

    @property
    def served(self) -> tuple[int, ...]:
        """The versions that Triton serves, ascending."""
        return self.config.serves(versions_of(self.folder)) if self.config else ()


def models_in(repository: Path) -> tuple[RepositoryModel, ...]:
    """Every folder with a configuration, by name. One that cannot be read is listed too: Triton says what is wrong."""
    return tuple(RepositoryModel(folder, _config_or_none(folder)) for folder in model_folders(repository))


def stages_of(repository: Path, name: str) -> tuple[RepositoryModel, ...]:
    """The models that were made for `name`: named after it, and not called with text."""
    return stages_among(models_in(repository), name)


def stages_among(models: Sequence[RepositoryModel], name: str) -> tuple[RepositoryModel, ...]:
    """Those of `models` that were made for `name`.

    Where `m` and `m_other` are both models, `m_other_onnxruntime` is a stage of `m_other`, not of `m`.
    """
    named_after = [model for model in models if model.name.startswith(f"{name}_")]
    others = tuple(f"{model.name}_" for model in named_after if model.task or model.config is None)
    stages = (model for model in named_after if model.config is not None and not model.task)
    return tuple(model for model in stages if not model.name.startswith(others))


def model_folders(repository: Path) -> tuple[Path, ...]:
    return tuple(sorted(path.parent for path in repository.glob(f"*/{CONFIG_FILE}")))


def versions_of(model: Path) -> tuple[int, ...]:
    """The version folders of a model, ascending."""
    if not model.is_dir():
        return ()
    return tuple(sorted(int(path.name) for path in model.iterdir() if path.is_dir() and path.name.isdecimal()))


def _config_or_none(folder: Path) -> ModelConfig | None:
    try:
        return read_config(folder / CONFIG_FILE)
    except RepositoryError:
        return None
