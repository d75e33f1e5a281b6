"""How far served answers are from the wanted ones, by the task's own metrics, seen from the caller's side."""

from __future__ import annotations

from trimaran.core.distances import Answers
from trimaran.core.tasks import task
from trimaran.core.tasks.task import WireTensors


def wire_fidelity(name: str, numbers: str, wanted: WireTensors, served: WireTensors) -> dict[str, float]:
    """The metrics of the task as far as a caller can see them.

    `numbers` names what the scores of a classifier were: the graph's own output.
    """
    return task(name).fidelity(*sides(name, numbers, wanted, served))


def wire_change(name: str, numbers: str, before: WireTensors, after: WireTensors) -> float:
    """The largest change of an answer between two ways of asking the same, in the task's own measure."""
    return task(name).change.value(*sides(name, numbers, before, after))


def sides(name: str, numbers: str, first: WireTensors, second: WireTensors) -> tuple[Answers, Answers]:
    """Both answers as the task's metrics read them."""
    row = task(name)
    return row.from_wire(numbers, first, second), row.from_wire(numbers, second, first)
