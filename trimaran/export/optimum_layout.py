"""Writes an artifact's model as optimum reads it: `model.onnx` for ORTModelFor…, `openvino_model.xml` for OVModelFor….

Optimum knows outputs by its own names. It pools token vectors itself, so a graph that ends in one vector a text gets a
further output: the token vectors before pooling. `sentence_embedding` stays beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trimaran.core.artifact import Artifact
from trimaran.core.errors import UsageError
from trimaran.core.onnx_write import write_model

# Our names of the outputs, and optimum's.
OUTPUTS: dict[str, dict[str, str]] = {
    "embedding": {"embedding": "sentence_embedding"},
    "text-classification": {"logits": "logits"},
    "zero-shot-classification": {"logits": "logits"},
    "rerank": {"score": "logits"},
    "token-classification": {"token_logits": "logits"},
    "question-answering": {"start_logits": "start_logits", "end_logits": "end_logits"},
    "feature-extraction": {"token_embeddings": "last_hidden_state"},
}
STATES = "last_hidden_state"
# Nodes that make one vector of a text's token vectors.
_POOLING = ("ReduceSum", "ReduceMean", "ReduceMax", "Gather")
# Nodes that weigh token vectors by the mask before that.
_WEIGHING = ("Mul", "Multiply", "Where", "Select")


def write_optimum_model(artifact: Artifact, folder: Path) -> None:
    """Raises UsageError for a task that optimum has no class for, and for an engine that only its GPU opens."""
    writer = {"onnx": _write_onnx, "openvino": _write_openvino}.get(artifact.format)
    if artifact.task not in OUTPUTS or writer is None:
        raise UsageError(
            f"Optimum does not open {artifact.task} as a {artifact.format} file of ours.",
            hint=f"It opens ONNX and OpenVINO files for {', '.join(OUTPUTS)}.",
        )
    writer(artifact, folder)


def _write_onnx(artifact: Artifact, folder: Path) -> None:
    import onnx_ir as ir

    model = ir.load(artifact.entry_path)
    outputs = list(model.graph.outputs)
    if artifact.task == "embedding":
        walk = _Walk(
            kind=lambda value: value.producer().op_type if value.producer() else value.name,
            parents=lambda value: [parent for parent in value.producer().inputs if parent] if value.producer() else [],
            key=lambda value: value.name,
        )
        states = _states(outputs[0], walk)
        states.name = STATES
        model.graph.outputs.insert(0, states)
    for value in outputs:
        value.name = OUTPUTS[artifact.task].get(value.name, value.name)
    write_model(model, folder / "model.onnx")


def _write_openvino(artifact: Artifact, folder: Path) -> None:
    import openvino as ov

    model = ov.Core().read_model(artifact.entry_path)
    outputs = list(model.outputs)
    names = [output.get_any_name() for output in outputs]
    if artifact.task == "embedding":
        walk = _Walk(
            kind=lambda value: (
                value.get_any_name()
                if value.get_node().get_type_name() == "Parameter"
                else value.get_node().get_type_name()
            ),
            parents=lambda value: [entry.get_source_output() for entry in value.get_node().inputs()],
            key=lambda value: (value.get_node().get_friendly_name(), value.get_index()),
        )
        states = _states(outputs[0].get_node().input(0).get_source_output(), walk)
        (added,) = model.add_outputs([states])
        added.get_tensor().set_names({STATES})
    for output, name in zip(outputs, names, strict=True):
        output.get_tensor().set_names({OUTPUTS[artifact.task].get(name, name)})
    ov.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)


class _Walk(NamedTuple):
    """How a graph of one library is walked from a value towards its inputs."""

    # The operator that made a value; the name of an input.
    kind: Callable[[Any], str]
    parents: Callable[[Any], Sequence[Any]]
    # Tells values apart.
    key: Callable[[Any], Any]


def _states(output: Any, walk: _Walk) -> Any:
    """The token vectors that were pooled into `output`."""
    from_text: dict[Any, bool] = {}

    def depends_on_text(value: Any) -> bool:
        """Without recursion: the way to the embeddings is longer than Python's stack."""
        waiting = [value]
        while waiting:
            current = waiting[-1]
            parents = walk.parents(current)
            unknown = [parent for parent in parents if walk.key(parent) not in from_text]
            if unknown:
                waiting += unknown
                continue
            from_text[walk.key(current)] = walk.kind(current) == "input_ids" or any(
                from_text[walk.key(parent)] for parent in parents
            )
            waiting.pop()
        return from_text[walk.key(value)]

    value = output
    while walk.kind(value) not in _POOLING:
        parents = [parent for parent in walk.parents(value) if depends_on_text(parent)]
        if not parents:
            raise UsageError("The graph has no pooling that could be left to optimum.", hint="Leave out --layout.")
        value = parents[0]
    (value, *_) = [parent for parent in walk.parents(value) if depends_on_text(parent)]
    while walk.kind(value) in _WEIGHING:
        (value, *_) = [parent for parent in walk.parents(value) if depends_on_text(parent)]
    return value
