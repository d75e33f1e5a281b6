"""Rewrites what TensorRT's parser cannot read, or cannot quantise, as operators that it can.

| family | operator | becomes |
|---|---|---|
| XLNet | EyeLike of a dynamic shape | Range of the rows = Range of the columns |
| DeBERTa | If the lengths of queries and keys differ | what an encoder has: equal lengths |
| GPT-2 | Gemm of all tokens with a matrix that is not transposed | MatMul and Add |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.onnx_graph import add_weight, is_weight, new_node

if TYPE_CHECKING:
    import onnx_ir as ir


def lower(model: ir.Model) -> int:
    """Rewrite the graph in place; return how many nodes were rewritten."""
    rewritten = 0
    for node in list(model.graph):
        rewrite = _REWRITES.get(node.op_type)
        rewritten += bool(rewrite and rewrite(model.graph, node))
    return rewritten


def _eye(graph: ir.Graph, node: ir.Node) -> bool:
    import onnx_ir as ir

    if "k" in node.attributes and node.attributes["k"].as_int():
        return False
    name = node.outputs[0].name
    kind = node.attributes["dtype"].as_int() if "dtype" in node.attributes else ir.DataType.FLOAT.value
    zero, one = (add_weight(graph, f"{name}_{word}", np.int64(number)) for word, number in (("zero", 0), ("one", 1)))
    last = add_weight(graph, f"{name}_last", np.array([1], np.int64))
    shape = new_node("Shape", [node.inputs[0]], f"{name}_shape")
    sizes = [new_node("Gather", [shape.outputs[0], axis], f"{name}_size_{axis.name}", axis=0) for axis in (zero, one)]
    counts = [
        new_node("Range", [zero, size.outputs[0], one], f"{name}_{word}")
        for size, word in zip(sizes, ("rows", "columns"), strict=True)
    ]
    rows = new_node("Unsqueeze", [counts[0].outputs[0], last], f"{name}_tall")
    equal = new_node("Equal", [rows.outputs[0], counts[1].outputs[0]], f"{name}_equal")
    cast = new_node("Cast", [equal.outputs[0]], f"{name}_cast", to=kind)
    return _replace(graph, node, [shape, *sizes, *counts, rows, equal, cast])


def _unequal(graph: ir.Graph, node: ir.Node) -> bool:
    """Take the branch for equal sizes out of an If that asks whether two differ, where it is a single Identity.

    In an encoder, queries and keys are of one length. Whoever lowers a graph compares its answers afterwards.
    """
    condition = [node.inputs[0].producer()]
    while condition[-1] is not None and condition[-1].op_type in ("Cast", "Not"):
        condition.append(condition[-1].inputs[0].producer())
    operators = [part.op_type for part in condition if part is not None and part.op_type != "Cast"]
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    if operators != ["Not", "Equal"] or [part.op_type for part in branches[1]] != ["Identity"]:
        return False
    same = branches[1][0].inputs[0]
    for branch in branches:
        # What is left of a branch would still count as a reader of the outer values.
        branch.outputs.clear()
        branch.remove(list(branch), safe=True)
    node.outputs[0].replace_all_uses_with(same, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


def _gemm(graph: ir.Graph, node: ir.Node) -> bool:
    """Only of a matrix as Conv1D stores it: a head's Linear is transposed, and costs nothing on one pooled row."""
    factors = {name: attribute.as_float() for name, attribute in node.attributes.items() if name in ("alpha", "beta")}
    turned = any(node.attributes[name].as_int() for name in ("transA", "transB") if name in node.attributes)
    if turned or any(factor != 1.0 for factor in factors.values()) or not is_weight(node.inputs[1], rank=2):
        return False
    name = node.outputs[0].name
    nodes = [new_node("MatMul", node.inputs[:2], f"{name}_product")]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        nodes.append(new_node("Add", [nodes[0].outputs[0], node.inputs[2]], f"{name}_sum"))
    return _replace(graph, node, nodes)


def _replace(graph: ir.Graph, node: ir.Node, nodes: list[ir.Node]) -> bool:
    """Put the nodes in the place of one. The last one gives its output, under its name."""
    before, after = node.outputs[0], nodes[-1].outputs[0]
    after.name, after.type, after.shape = before.name, before.type, before.shape
    graph.insert_before(node, nodes)
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


_REWRITES = {"EyeLike": _eye, "If": _unequal, "Gemm": _gemm}
