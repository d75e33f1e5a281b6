"""What export and optimisation both do to an ONNX graph: share equal weights, write it, look at its hygiene."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Protobuf stops at 2 GiB; a margin is left for the nodes.
EXTERNAL_ABOVE_BYTES = 1_900_000_000
WEIGHTS_FILE = "model.onnx.data"


def share_equal_weights(model: Any) -> int:
    """Keeps one of each set of equal initializers, and no Identity in front of any; returns the bytes that saved.

    ALBERT repeats one layer: constant folding, and the fusion of Q, K and V, write it out once a layer. torch's
    TorchScript exporter shares by Identity nodes, which hide a weight from every pattern that looks for one.
    """
    kept: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    saved = 0
    graph = model.graph
    for tensor in graph.initializer:
        raw = tensor.raw_data or tensor.SerializeToString()
        identity = hashlib.sha256(repr((tensor.data_type, list(tensor.dims))).encode())
        identity.update(raw if tensor.raw_data else _without_name(tensor))
        first = kept.setdefault(identity.digest(), tensor.name)
        if first != tensor.name:
            renamed[tensor.name] = first
            saved += len(raw)
    outputs = {output.name for output in graph.output}
    weights = {tensor.name for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Identity"]:
        source = node.input[0]
        if (source in weights or source in renamed) and node.output[0] not in outputs:
            renamed[node.output[0]] = renamed.get(source, source)
            graph.node.remove(node)
    for node in _nodes(graph):
        for index, name in enumerate(node.input):
            if name in renamed:
                node.input[index] = renamed[name]
    # One by one: a list of all the others would copy them.
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in renamed and graph.initializer[index].name not in outputs:
            del graph.initializer[index]
    return saved


def rename_outputs(model: Any, prefix: str) -> None:
    """Takes `prefix` off the names of the outputs; an inner value that has such a name already gives way."""
    wanted = [output.name.removeprefix(prefix) for output in model.graph.output]
    renamed = {name: f"inner.{name}" for name in wanted} | {f"{prefix}{name}": name for name in wanted}
    for node in _nodes(model.graph):
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = renamed.get(name, name)
    for output, name in zip(model.graph.output, wanted, strict=True):
        output.name = name


def save_graph(model: Any, path: Path, *, external_above_bytes: int | None = None) -> bool:
    """Writes the graph, its weights beside it where one file would be too large; returns whether they are."""
    import onnx

    limit = EXTERNAL_ABOVE_BYTES if external_above_bytes is None else external_above_bytes
    external = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > limit
    if external:
        onnx.save_model(
            model,
            str(path),
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location=WEIGHTS_FILE,
            size_threshold=1024,
            convert_attribute=False,
        )
    else:
        onnx.save_model(model, str(path))
    return external


def check_graph(path: Path) -> None:
    """ONNX's checker with strict shape inference; it copies a model several times, so the weights stay away."""
    import onnx

    onnx.checker.check_model(without_weights(path)[0], full_check=True)


def without_weights(path: Path) -> tuple[Any, set[str], bool]:
    """The graph with its large weights as inputs of the same type and shape, their names, whether they lie beside."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    graph = model.graph
    outside = onnx.TensorProto.EXTERNAL
    large = [tensor for tensor in graph.initializer if len(tensor.raw_data) > 4096 or tensor.data_location == outside]
    values = [onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in large]
    names, external = {tensor.name for tensor in large}, any(tensor.data_location == outside for tensor in large)
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.input.extend(values)
    return model, names, external


def graph_facts(path: Path) -> dict[str, Any]:
    """Opset, operators, what constant folding left, and where the graph computes in int64 beyond shapes."""

    model, weights, external = without_weights(path)
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer} | weights
    foldable = 0
    for node in graph.node:
        if node.op_type == "Constant":
            constants.update(node.output)
        elif node.input and all(name in constants or not name for name in node.input):
            foldable += 1
            constants.update(node.output)
    return {
        "opset": next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        "operators": dict(sorted(Counter(node.op_type for node in graph.node).items())),
        "foldable_nodes": foldable,
        "int64_operators": _int64_operators(model),
        "external_weights": external,
    }


def _int64_operators(model: Any) -> dict[str, int]:
    """Operators that give int64 tensors with a batch axis: a few on ids and masks, none in the layers."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model)
    large = {
        value.name
        for value in inferred.graph.value_info
        if value.type.tensor_type.elem_type == onnx.TensorProto.INT64 and len(value.type.tensor_type.shape.dim) > 1
    }
    found = Counter(node.op_type for node in inferred.graph.node if any(name in large for name in node.output))
    return dict(sorted(found.items()))


def _nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _without_name(tensor: Any) -> bytes:
    import onnx

    bare = onnx.TensorProto()
    bare.CopyFrom(tensor)
    bare.name = ""
    return bytes(bare.SerializeToString())
