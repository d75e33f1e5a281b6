"""The token vectors of every layer inside an engine, found by their values.

A quantised graph has other nodes and names than the trained model. Every inner tensor with one vector for each token is
read, and the one that is nearest to what eager PyTorch's layer gives is that layer's. A second graph then gives only
these, because an engine fuses less where more is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimaran.core.artifact import Artifact
from trimaran.core.backends import backend
from trimaran.core.scratch import ScratchFolder
from trimaran.pipeline.look.reading import Reading
from trimaran.runtime.text import Array

# A tensor further away than this share of the layer's own length is not that layer.
_FURTHEST = 0.5
_MARK = "look."


class InnerStates(NamedTuple):
    """What the engine computed for one reading."""

    # By layer of eager PyTorch, embeddings first: [tokens, hidden], or None where the graph has no such tensor.
    states: list[Array | None]
    # The engine's outputs while its layers were read. Fewer fused nodes may move them a little.
    outputs: Mapping[str, Array]


def inner_states(artifact: Artifact, readings: Sequence[Reading], *, threads: int) -> list[InnerStates] | None:
    """None for an engine whose file does not show its layers (TensorRT)."""
    if artifact.backend not in _WATCHED:
        return None
    watch = _WATCHED[artifact.backend]
    first = readings[0]
    with ScratchFolder("look") as folder:
        [tensors] = _run(
            artifact, watch(artifact.entry_path, Path(folder), first.states.shape[-1], None), [first], threads
        )
    names = [_nearest(state, tensors) for state in first.states]
    chosen = sorted({name for name in names if name})
    with ScratchFolder("look") as folder:
        path = watch(artifact.entry_path, Path(folder), first.states.shape[-1], chosen)
        answers = _run(artifact, path, readings, threads)
    return [
        InnerStates(
            [answer[name][0] if name else None for name in names],
            {name: array for name, array in answer.items() if not name.startswith(_MARK)},
        )
        for answer in answers
    ]


def _run(artifact: Artifact, path: Path, readings: Sequence[Reading], threads: int) -> list[dict[str, Array]]:
    engine = backend(artifact.backend).engine(str(path), threads=threads, options=artifact.engine_options)
    try:
        return [dict(engine.infer(reading.inputs)) for reading in readings]
    finally:
        engine.close()


def _nearest(state: Array, tensors: Mapping[str, Array]) -> str | None:
    length = float(np.linalg.norm(state)) or 1.0
    distances = {
        name: float(np.linalg.norm(array[0] - state)) / length
        for name, array in tensors.items()
        if array.shape == (1, *state.shape)
    }
    name = min(distances, key=distances.__getitem__, default=None)
    return name if name is not None and distances[name] <= _FURTHEST else None


def _watched_openvino(path: Path, folder: Path, hidden: int, chosen: Sequence[str] | None) -> Path:
    """Writes the graph with further outputs, named by the order of their nodes: all that may be layers, or `chosen`."""
    import openvino as ov

    model = ov.Core().read_model(path)
    answers = {result.input_value(0).get_node().get_friendly_name() for result in model.get_results()}
    for name, output in list(_named(_vectors_of_openvino(model, hidden))):
        if (chosen is None or name in chosen) and output.get_node().get_friendly_name() not in answers:
            # The engine gives a tensor under any of its names, so it must have no other.
            output.set_names({name})
            model.add_outputs([output])
    # A new model has no notes: the form without padding would be compiled as well, and a text alone has none.
    plain = ov.Model(model.get_results(), model.get_sinks(), model.get_parameters(), "watched")
    target = folder / "watched.xml"
    ov.save_model(plain, target, compress_to_fp16=False)
    return target


def _vectors_of_openvino(model: Any, hidden: int) -> Iterator[Any]:
    for node in model.get_ordered_ops():
        for output in node.outputs() if node.get_type_name() not in ("Constant", "Parameter", "Result") else ():
            shape = output.get_partial_shape()
            wide = shape.rank.is_static and len(shape) == 3 and shape[2].is_static and shape[2].get_length() == hidden
            if wide and output.get_element_type().is_real():
                yield output


def _watched_onnx(path: Path, folder: Path, hidden: int, chosen: Sequence[str] | None) -> Path:
    """As for OpenVINO. Shapes are not known before the graph runs, so every float tensor is tried."""
    import onnx_ir as ir

    from trimaran.core.onnx_write import write_model

    model = ir.load(path)
    for name, value in _named(value for node in model.graph for value in node.outputs[:1] if value.name):
        if value.is_graph_output() or (chosen is not None and name not in chosen):
            continue
        copy = ir.node("Identity", [value], name=name, outputs=[ir.Value(name=name)])
        model.graph.append(copy)
        model.graph.outputs.append(copy.outputs[0])
    target = folder / "watched.onnx"
    write_model(model, target, external_above_bytes=0)
    return target


def _named(tensors: Any) -> Iterator[tuple[str, Any]]:
    for index, tensor in enumerate(tensors):
        yield f"{_MARK}{index}", tensor


# By backend: (graph, folder to write to, hidden width, names that are wanted) -> a graph with further outputs.
_WATCHED = {"openvino": _watched_openvino, "onnxruntime": _watched_onnx}
