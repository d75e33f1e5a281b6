"""Splits ONNX Runtime's fused residual norms into a sum and a norm, which its CPU kernels run several times faster.

`SkipLayerNormalization` adds up its rows number by number; `LayerNormalization` does so by vectors. So

    SkipLayerNormalization(x, residual, weight, offset, bias)

becomes `LayerNormalization(x + bias + residual, weight, offset)`. Decision 175 has the times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimaran.core.onnx_graph import new_node

if TYPE_CHECKING:
    import onnx_ir as ir

# By fused operator: its norm, and which of its inputs are the norm's own and the bias.
_NORMS = {
    "SkipLayerNormalization": ("LayerNormalization", (2, 3), 4),
    "SkipSimplifiedLayerNormalization": ("SimplifiedLayerNormalization", (2,), 3),
}
# Of a fused norm that does not say another; that of LayerNormalization is 1e-5.
_EPSILON = 1e-12
# The output of a fused norm that is the sum before it; outputs between are statistics, which nothing here reads.
_SUM = 3


def split_skip_norms(model: ir.Model) -> int:
    """Split every fused residual norm of the graph in place; return how many there were."""
    nodes = [node for node in model.graph if node.op_type in _NORMS]
    for node in nodes:
        _split(model.graph, node)
    return len(nodes)


def _split(graph: ir.Graph, node: ir.Node) -> None:
    operator, own, bias = _NORMS[node.op_type]
    result, name = node.outputs[0], str(node.outputs[0].name)
    addends = [node.inputs[0], *([node.inputs[bias]] if len(node.inputs) > bias else []), node.inputs[1]]
    total, nodes = addends[0], []
    for index, addend in enumerate(value for value in addends[1:] if value is not None):
        nodes.append(new_node("Add", [total, addend], f"{name}_sum{index}"))
        total = nodes[-1].outputs[0]
    epsilon = node.attributes["epsilon"].value if "epsilon" in node.attributes else _EPSILON
    weights = [node.inputs[index] for index in own if len(node.inputs) > index]
    norm = new_node(operator, [total, *weights], f"{name}_norm", axis=-1, epsilon=epsilon)
    norm.outputs[0].type, norm.outputs[0].shape = result.type, result.shape
    graph.insert_before(node, [*nodes, norm])
    if len(node.outputs) > _SUM:
        node.outputs[_SUM].replace_all_uses_with(total, replace_graph_outputs=True)
    result.replace_all_uses_with(norm.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)
    norm.outputs[0].name = name
