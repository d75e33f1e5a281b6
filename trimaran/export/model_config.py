"""Reads config.json as transformers' config of the family, and its sizes through optimum."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from trimaran.core.errors import UsageError
from trimaran.core.families import UNBOUNDED, family
from trimaran.export.quiet import quiet

# Far above every published encoder. A config.json that states more would take all memory when its model is built.
_MOST = {"hidden": 65_536, "layers": 1_000, "heads": 4_096, "vocabulary": 10_000_000}


class ModelSizes(NamedTuple):
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    # Tokens that the model can read: its position table, without the entries that no token uses.
    positions: int


def config_from_json(stated: Mapping[str, Any], model_type: str, source: str) -> Any:
    """transformers' config for `model_type`, which replaces the model_type that config.json states."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    facts = {key: value for key, value in stated.items() if key not in ("model_type", "auto_map")}
    try:
        with quiet():
            return transformers.CONFIG_MAPPING[model_type].from_dict(facts)
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise UsageError(
            f"The config.json of {source} does not describe a {model_type}: {' '.join(str(error).split())}",
            hint="Use the config.json that was saved with these weights.",
        ) from error


def encoder_section(stated: Mapping[str, Any], model_type: str, source: str) -> Mapping[str, Any]:
    """The part of config.json that describes the encoder: all of it, or the section that the family's row names."""
    name = family(model_type).section
    section = stated.get(name) if name else stated
    if not isinstance(section, Mapping):
        raise UsageError(
            f"The config.json of {source} has no section {name!r}, which describes the encoder of a {model_type}.",
            hint="Use the config.json that was saved with these weights.",
        )
    return section


class StatedConfig:
    """config.json with the attributes of transformers' config: of its encoder, where that has a section of its own.

    A number that the file states under the asked name is read from it. For everything else transformers' config is
    built, which knows defaults and other names but imports torch: planning a BERT does without it.
    """

    def __init__(self, stated: Mapping[str, Any], model_type: str, source: str) -> None:
        self.model_type = model_type
        self._whole, self._stated = stated, encoder_section(stated, model_type, source)
        self.source = source
        # Some configurations of transformers make a list with an entry for each layer.
        for name, value in self._stated.items():
            if "layers" in name and isinstance(value, int):
                _require_possible(name, value, _MOST["layers"], source, least=0)

    @functools.cached_property
    def _built(self) -> Any:
        built = config_from_json(self._whole, self.model_type, self.source)
        section = family(self.model_type).section
        return getattr(built, section) if section else built

    def __getattr__(self, name: str) -> Any:
        value = self._stated.get(name)
        return value if isinstance(value, int) else getattr(self._built, name)


def sizes_of(config: StatedConfig) -> ModelSizes:
    """Every family names its sizes differently; optimum and transformers' attribute maps know the names."""
    from optimum.utils import NormalizedConfigManager, NormalizedTextConfig

    try:
        normalized = NormalizedConfigManager.get_normalized_config_class(config.model_type)(config)
    except KeyError:  # optimum knows half of our families; the others use BERT's names or an attribute map
        normalized = NormalizedTextConfig(config)
    sizes = ModelSizes(
        hidden=int(normalized.hidden_size),
        layers=int(normalized.num_layers),
        heads=int(normalized.num_attention_heads),
        vocabulary=int(normalized.vocab_size),
        positions=_positions(config),
    )
    for name, most in _MOST.items():
        _require_possible(name, getattr(sizes, name), most, config.source)
    return sizes


def _require_possible(name: str, value: int, most: int, source: str, *, least: int = 1) -> None:
    if not least <= value <= most:
        raise UsageError(
            f"The config.json of {source} states {name} of {value:,}; {least:,} to {most:,} are possible.",
            hint="Use the config.json that was saved with these weights.",
        )


def _positions(config: StatedConfig) -> int:
    row = family(config.model_type)
    if row.relative_positions:
        return UNBOUNDED
    return row.longest(config) if row.longest else int(config.max_position_embeddings) - row.reserved_positions


def inputs_of(config: StatedConfig) -> tuple[str, ...]:
    """The family's inputs, without segment ids if the model has no table for them."""
    inputs = family(config.model_type).inputs
    if "token_type_ids" not in inputs:
        return inputs
    # XLNet has segments without a table.
    segments = getattr(config, "type_vocab_size", 2)
    return inputs if segments > 1 else tuple(name for name in inputs if name != "token_type_ids")
