"""What export and optimisation both do to an ONNX graph: share equal weights, write it, look at its hygiene."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trimaran.core.onnx_write import EXTERNAL_ABOVE_BYTES, Array, Weight, weights_from_tensors, write_graph

_LARGE_BYTES = 4096


def load_graph(path: Path) -> tuple[Any, dict[str, Any]]:
    """A graph with its weights, and the tables beside it that it only looks things up in, as entries without numbers.

    No fusion computes with such a table, and they are most of a large model: in the graph each is one row of zeros,
    until `put_back` gives it its entry again.
    """
    import numpy as np
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    computed = {name for node in all_nodes(model.graph) if node.op_type != "Gather" for name in node.input}
    tables = {}
    for tensor in model.graph.initializer:
        if not tensor.external_data:
            continue
        if tensor.name in computed:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.ClearField("data_location")
            del tensor.external_data[:]
        else:
            tables[tensor.name] = onnx.TensorProto.FromString(tensor.SerializeToString())
            row = np.zeros((1, *tensor.dims[1:]), onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(onnx.numpy_helper.from_array(row, tensor.name))
    return model, tables


def put_back(model: Any, tables: Mapping[str, Any]) -> None:
    for tensor in model.graph.initializer:
        if tensor.name in tables:
            tensor.CopyFrom(tables[tensor.name])


def share_equal_weights(model: Any, beside: Path | None = None) -> int:
    """Keeps one of each set of equal initializers, and no Identity in front of any; returns the bytes that saved.

    ALBERT repeats one layer: constant folding, and the fusion of Q, K and V, write it out once a layer. torch's
    TorchScript exporter shares by Identity nodes, which hide a weight from every pattern that looks for one.
    """
    graph = model.graph
    weights = weights_from_tensors(graph.initializer, beside)
    drop_identities(graph, {weight.name for weight in weights})
    dropped, saved = merge_equal(graph, weights)
    # One by one: a list of all the others would copy them.
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name in dropped:
            del graph.initializer[index]
    return saved


def drop_identities(graph: Any, weights: set[str]) -> None:
    """Takes away the Identity nodes between a weight and those who read it."""
    outputs = {output.name for output in graph.output}
    renamed: dict[str, str] = {}
    for node in [node for node in graph.node if node.op_type == "Identity"]:
        source = renamed.get(node.input[0], node.input[0])
        if source in weights and node.output[0] not in outputs:
            renamed[node.output[0]] = source
            graph.node.remove(node)
    _rename_inputs(graph, renamed)


def merge_equal(graph: Any, weights: Iterable[Weight]) -> tuple[set[str], int]:
    """Makes the nodes read one of each set of equal weights; returns the names of the others, and their bytes."""
    kept: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    saved = 0
    outputs = {output.name for output in graph.output}
    for weight in weights:
        identity = hashlib.sha256(repr((weight.data_type, list(weight.dims))).encode())
        identity.update(weight.content())
        first = kept.setdefault(identity.digest(), weight.name)
        if first != weight.name and weight.name not in outputs:
            renamed[weight.name] = first
            saved += weight.size_bytes
    _rename_inputs(graph, renamed)
    return set(renamed), saved


def rename_outputs(model: Any, prefix: str) -> None:
    """Takes `prefix` off the names of the outputs; an inner value that has such a name already gives way."""
    wanted = [output.name.removeprefix(prefix) for output in model.graph.output]
    renamed = {name: f"inner.{name}" for name in wanted} | {f"{prefix}{name}": name for name in wanted}
    for node in all_nodes(model.graph):
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = renamed.get(name, name)
    for output, name in zip(model.graph.output, wanted, strict=True):
        output.name = name


def save_graph(model: Any, path: Path, *, external_above_bytes: int | None = None, beside: Path | None = None) -> bool:
    """Writes the graph, its weights beside it where one file would be too large; returns whether they are.

    `beside` is the folder of weights that `load_graph` left where they were.
    """
    limit = EXTERNAL_ABOVE_BYTES if external_above_bytes is None else external_above_bytes
    weights = weights_from_tensors(model.graph.initializer, beside)
    return write_graph(model, weights, path, external_above_bytes=limit)


def with_stand_ins(model: Any, weights: Mapping[str, Array]) -> Any:
    """A copy of a graph without weights that has the small ones, and for each large one an input of its shape.

    The checker and shape inference copy a model several times: no large weight comes near them.
    """
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name, array in weights.items():
        if array.nbytes > _LARGE_BYTES:
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            copy.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
        else:
            copy.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return copy


def check_graph(model: Any) -> None:
    """ONNX's checker with strict shape inference."""
    import onnx

    onnx.checker.check_model(model, full_check=True)


def graph_facts(model: Any, inputs: Iterable[str]) -> dict[str, Any]:
    """Opset, operators, what constant folding left, and where the graph computes in int64 beyond shapes.

    `inputs` are the caller's; the model's other inputs stand for weights.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input} - set(inputs)
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


def _rename_inputs(graph: Any, renamed: Mapping[str, str]) -> None:
    for node in all_nodes(graph):
        for index, name in enumerate(node.input):
            if name in renamed:
                node.input[index] = renamed[name]


def all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g)
