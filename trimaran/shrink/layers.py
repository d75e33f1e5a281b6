"""Leaves layers out of a transformer, and finds by trial which ones can go."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from trimaran.core.errors import UnavailableError

if TYPE_CHECKING:
    import torch


class NoLayerList(UnavailableError):
    """A model whose layers are not one list: ALBERT runs one layer several times, XLM has lists of their parts."""


def layer_list(model: torch.nn.Module) -> tuple[str, torch.nn.ModuleList]:
    """The name and the layers of transformers' model: the outermost list of as many modules as its config says.

    Raises NoLayerList if there is none, or more than one.
    """
    import torch

    count = int(cast(Any, model.config).num_hidden_layers)
    lists = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and len(module) == count
    }
    outermost = [
        (name, modules) for name, modules in lists.items() if not any(name.startswith(f"{other}.") for other in lists)
    ]
    if len(outermost) != 1:
        raise NoLayerList(
            f"{type(model).__name__} has {len(outermost)} lists of {count} layers, so that none can be left out.",
            hint="Only models with one list of layers can be reduced: not ALBERT, XLM or FlauBERT.",
        )
    return outermost[0]


def fixed_layers(model: torch.nn.Module) -> frozenset[int]:
    """The first layer, if it is unlike all others: in T5 it holds the positions for all layers."""
    first, *others = (
        {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()} for layer in layer_list(model)[1]
    )
    return frozenset({0}) if others and first not in others else frozenset()


def with_layers(module: torch.nn.Module, kept: Sequence[int]) -> torch.nn.Module:
    """A copy of `module` whose `model` (one of transformers) has only these layers. Both share their parameters."""
    import torch

    shared = {id(parameter): parameter for parameter in module.parameters()}
    smaller = copy.deepcopy(module, shared)
    model = cast(torch.nn.Module, smaller.model)
    config: Any = model.config
    count = config.num_hidden_layers
    name, layers = layer_list(model)
    stay = torch.nn.ModuleList(layers[index] for index in kept)
    for index, layer in enumerate(stay):
        for part in layer.modules():
            # Caches of keys and values are found by it.
            if hasattr(part, "layer_idx"):
                part.layer_idx = index
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, stay)
    for key, value in list(vars(config).items()):
        # What a config says of each layer, such as `layer_types` of Gemma and ModernBERT.
        if "layer" in key and isinstance(value, list) and len(value) == count:
            setattr(config, key, [value[index] for index in kept])
    config.num_hidden_layers = len(kept)
    return smaller


def choose_layers(
    count: int, wanted: int, distance: Callable[[tuple[int, ...]], float], *, fixed: frozenset[int] = frozenset()
) -> tuple[int, ...]:
    """The layers that stay: the one whose absence moves the answers least is left out, again and again.

    `distance` says how far the answers move with only the given layers. Layers of `fixed` always stay.
    """
    kept = tuple(range(count))
    while len(kept) > wanted:
        trials = [tuple(layer for layer in kept if layer != left_out) for left_out in kept if left_out not in fixed]
        kept = min(trials, key=distance)
    return kept


def learnt_layers(count: int, wanted: int) -> tuple[int, ...]:
    """For each of the student's layers: the teacher's layer whose output it learns. Each does the work of as many.

    They do not depend on the layers that stayed: of those, the first may be the teacher's first one, and would have
    nothing to learn.
    """
    return tuple((place + 1) * count // wanted - 1 for place in range(wanted))


def trials_of(count: int, wanted: int, fixed: frozenset[int] = frozenset()) -> int:
    """How often `choose_layers` asks for a distance."""
    return sum(size - len(fixed) for size in range(wanted + 1, count + 1))
