"""What the search for mixed precision found, layer by layer: kept in the manifest, plotted in the report."""

from __future__ import annotations

from typing import Literal

from trimaran.core.spec import Frozen
from trimaran.judging.evidence import Evidence

KEY = "sensitivity"
# Why a search ended; `trials`: after as many as it makes at most.
SearchEnd = Literal["gates keep", "budget", "trials", "nothing left"]


class LayerCost(Frozen):
    """What one layer loses in INT8, and what was chosen for it."""

    name: str
    # The loss with this layer alone in INT8, as a part of the loss with all layers in INT8. None if it was not tried,
    # because the budget ended or because it could not change the choice.
    cost: float | None
    # The interval of `cost` over texts.
    low: float | None
    high: float | None
    kept: Literal["float", "int8"]


class SearchStep(Frozen):
    """One set of layers in float, how many they are, and the mean loss with the upper end of its interval."""

    kept: int
    value: float
    high: float
    holds: bool


class Sensitivity(Frozen):
    """`layers` in the graph's order, `steps` in the order tried; `gates` is what the chosen set was decided on."""

    metric: str
    texts: int
    texts_digest: str
    layers: tuple[LayerCost, ...]
    steps: tuple[SearchStep, ...]
    gates: tuple[Evidence, ...]
    stopped: SearchEnd
    seconds: float
    budget_s: float
