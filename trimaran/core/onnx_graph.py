"""What export and quantisation both do to an ONNX graph: share equal weights, check it, describe it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir


def add_weight(graph: ir.Graph, name: str, array: Any) -> ir.Value:
    """Give the graph one more weight; return the value that nodes read it by."""
    import onnx_ir as ir

    tensor = ir.Tensor(np.asarray(array), name=name)
    value = ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def new_node(operator: str, inputs: Sequence[ir.Value | None], name: str, **attributes: Any) -> ir.Node:
    """Return a node, not yet in a graph, with one output. Both have the name."""
    import onnx_ir as ir

    return ir.node(operator, inputs, attributes, name=name, outputs=[ir.Value(name=name)])


def is_weight(value: ir.Value | None, *, rank: int | None = None) -> bool:
    """Whether this is a weight of the graph, and, where `rank` is given, one with so many dimensions."""
    if value is None or not value.is_initializer():
        return False
    return rank is None or len(value.const_value.shape) == rank


def array_of(value: ir.Value) -> Array:
    """Return a weight's numbers; they are not to be changed in place."""
    return np.asarray(value.const_value.numpy())


def has_subgraph(node: ir.Node) -> bool:
    import onnx_ir as ir

    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in graphs for attribute in node.attributes.values())


def drop_identities(model: ir.Model) -> None:
    """Take away the Identity nodes between a weight and the nodes that read it.

    torch's TorchScript exporter shares a weight by Identity nodes, which hide it from every pattern that looks for one.
    onnx_ir's pass for this fails on an Identity inside an If (DeBERTa has such).
    """
    for node in model.graph:
        if node.op_type == "Identity" and is_weight(node.inputs[0]) and not node.outputs[0].is_graph_output():
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            model.graph.remove(node, safe=True)


def share_equal_weights(model: ir.Model) -> int:
    """Keep one of each set of equal weights; return the bytes that this saved.

    ALBERT repeats one layer. Constant folding, and the fusion of Q, K and V, write its weights once a repetition.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import DeduplicateHashedInitializersPass

    values = model.graph.initializers.values()
    for value in values:
        # The pass reads memory in order. A transposed view is copied when it is read, one at a time.
        if isinstance(value.const_value, ir.Tensor) and not value.const_value.numpy().flags.c_contiguous:
            value.const_value = _copied_when_read(value.const_value)
    before_bytes = sum(value.const_value.nbytes for value in values)
    DeduplicateHashedInitializersPass()(model)
    return int(before_bytes - sum(value.const_value.nbytes for value in values))


def _copied_when_read(view: ir.Tensor) -> ir.LazyTensor:
    import onnx_ir as ir

    return ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(view.numpy())), dtype=view.dtype, shape=view.shape, name=view.name
    )


def check_graph(model: ir.Model) -> None:
    """Run ONNX's checker with strict shape inference. Neither sees the large weights, which both would copy."""
    from onnx_ir.passes.common import CheckerPass

    CheckerPass(full_check=True)(model)


def infer_types(model: ir.Model) -> None:
    """Give inner values the types and shapes that ONNX infers. An operator it does not know ends its branch."""
    from onnx_ir.passes.common import ShapeInferencePass

    ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)


def graph_facts(model: ir.Model) -> dict[str, Any]:
    """Return the opset, the operators, what constant folding left, and where the graph computes in int64."""
    import onnx_ir as ir

    infer_types(model)
    constants = set(model.graph.initializers.values())
    foldable, operators, int64_operators = 0, Counter[str](), Counter[str]()
    for node in model.graph:
        operators[node.op_type] += 1
        # Shapes are int64 vectors. A few operators on ids and masks give int64 tensors with a batch axis, layers none.
        int64_operators[node.op_type] += any(
            value.dtype == ir.DataType.INT64 and value.shape is not None and len(value.shape) > 1
            for value in node.outputs
            if not value.is_graph_output()
        )
        if node.op_type == "Constant":
            constants.update(node.outputs)
        elif node.inputs and all(value is None or value in constants for value in node.inputs):
            foldable += 1
            constants.update(node.outputs)
    return {
        "opset": model.graph.opset_imports[""],
        "operators": dict(sorted(operators.items())),
        "foldable_nodes": foldable,
        "int64_operators": dict(sorted((+int64_operators).items())),
    }
