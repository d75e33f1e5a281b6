"""The last proof before publishing: serve a repository here, ask it over the wire, hold the answers to the gates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trimaran.artifact import kept, load_artifact
from trimaran.errors import QualityError
from trimaran.parity import Outputs
from trimaran.runtime.text import Text
from trimaran.serving.client import Client
from trimaran.serving.server import launch
from trimaran.serving.verify import served_outputs, verify
from trimaran.tasks import Gate
from trimaran.tasks import task as task_named

_ASKED_ALONE = 32


def serve_and_verify(
    repository: Path, name: str, task: str, texts: Sequence[Text], expected: Outputs, *, gates: Sequence[Gate]
) -> dict[str, float]:
    """The task's metrics and `batch_change`, as seen by a client. Raises QualityError for a gate that broke."""
    labels, output = _labels(repository / name), next(iter(expected))
    with launch(repository) as server, Client(server.grpc_url) as client:
        metrics = verify(client, name, texts, expected, task=task, labels=labels)
        few = texts[:_ASKED_ALONE]
        together = served_outputs(client, name, few, output=output, labels=labels)
        apart = [served_outputs(client, name, [text], output=output, labels=labels) for text in few]
    alone = {key: np.concatenate([answer[key] for answer in apart]) for key in together}
    metrics["batch_change"] = task_named(task).change(alone, together)
    broken = [gate for gate in gates if gate.metric in metrics and not _holds(gate, metrics)]
    if broken:
        said = ", ".join(
            f"{gate.metric} {metrics[gate.metric]:.3g}, wanted {gate.comparison} {gate.limit:g}" for gate in broken
        )
        raise QualityError(
            f"As served, {name} is not what was proven: {said}.",
            hint="Serve with the libraries that the artifact's manifest names.",
            metrics=metrics,
        )
    return metrics


def _holds(gate: Gate, metrics: dict[str, float]) -> bool:
    return kept(metrics[gate.metric], gate.comparison, gate.limit)


def _labels(model: Path) -> tuple[str, ...]:
    """The labels in the order of the logits, from the manifest that travels with the newest version."""
    newest = max((path for path in model.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    return load_artifact(newest, verify=False).labels
