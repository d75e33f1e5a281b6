"""A canary: one small question for a model, and whether its answer makes sense."""

from __future__ import annotations

import numpy as np

from trimaran.runtime.tasks import served_task
from trimaran.runtime.text import Array
from trimaran.serving.client.question import Ask, Model

_TEXT = "A canary sings in the mine."
# Triton serves priority 1 before the requests of callers. Models without levels of priority ignore it.
PRIORITY = 1


def canary(model: Model) -> Ask[bool]:
    """One row for the inputs that the task needs. The answer says whether its numbers make sense."""
    inputs = {
        field.name: np.array([[_TEXT.encode()] * (2 if field.many else 1)], np.object_)
        for field in served_task(model.task).inputs
        if not field.optional
    }
    return Ask((inputs,), tuple(model.outputs), lambda parts: all(map(_makes_sense, parts[0].values())))


def _makes_sense(output: Array) -> bool:
    """A stub with the wrong numpy answers zeros. An empty answer is fine: a text may have no sparse weights."""
    if not np.issubdtype(output.dtype, np.floating) or not output.size:
        return True
    return bool(np.isfinite(output).all() and output.any())
