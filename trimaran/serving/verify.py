"""Whether a live endpoint gives the answers that eager PyTorch gave, by the task's own metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.errors import UsageError
from trimaran.parity import Outputs
from trimaran.runtime.text import Text, softmax
from trimaran.serving.client import Client, Ranking
from trimaran.tasks import task as task_named

_SMALLEST = 1e-30


def verify(
    client: Client, name: str, texts: Sequence[Text], expected: Outputs, *, task: str, labels: Sequence[str] = ()
) -> dict[str, float]:
    """The task's fidelity metrics of the served answers against `expected`, eager's outputs for the same texts.

    Where the graph gives logits, a classifier serves probabilities: both sides are then compared as logarithms of
    them. `labels` gives the order of eager's numbers.
    """
    output = next(iter(expected))
    wanted = {"logits": _log(softmax(expected["logits"]))} if output == "logits" else dict(expected)
    found = served_outputs(client, name, texts, output=output, labels=labels)
    for key, array in wanted.items():
        if array.shape != found[key].shape:
            raise UsageError(
                f"Expected answers of {name} have shape {array.shape}, the served ones {found[key].shape}.",
                hint="Compare with eager's answers to the same texts by the same model.",
            )
    return task_named(task).fidelity(wanted, found)


def served_outputs(
    client: Client, name: str, texts: Sequence[Text], *, output: str, labels: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The served answers under the name of the graph's output, in the form that the task's metrics compare."""
    if output == "embedding":
        return {output: client.embed(name, texts)}
    scores = _in_order(client.classify(name, texts), labels)
    return {output: _log(scores) if output == "logits" else scores}


def _in_order(rankings: Sequence[Ranking], labels: Sequence[str]) -> npt.NDArray[Any]:
    served = [label for label, _ in rankings[0]] if rankings else []
    if sorted(served) != sorted(labels):
        raise UsageError(f"Wanted the labels {sorted(labels)}, the server has {sorted(served)}.")
    return np.asarray([[dict(ranking)[label] for label in labels] for ranking in rankings])


def _log(probabilities: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.asarray(np.log(np.maximum(probabilities, _SMALLEST)))
