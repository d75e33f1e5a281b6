"""Computes, at export, what depends on weights and constants alone: transposed weights, scales, offsets.

onnx_ir has no pass for this. The folding of torch, and that of onnxscript, copy each weight. Here a transposed weight
is a view of the untransposed one, and is copied only when it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.onnx_graph import add_weight, has_subgraph
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

# How many bytes a constant may have more than what it is computed from. An expanded mask would enlarge the file for
# nothing.
GROWTH_BYTES = 1 << 16
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


def fold_constants(model: ir.Model) -> int:
    """Replace nodes by the weights that they compute, drop what nothing reads; return how many nodes were folded."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    folded, tied = 0, {node for node in model.graph if _reads_tied_table(node)}
    for node in model.graph:
        inputs = None if node in tied else _constant_inputs(node)
        if inputs is None:
            continue
        results = _evaluate(node, inputs, model.graph.opset_imports)
        read_bytes = sum(array.nbytes for array in inputs if array is not None)
        if not all(_can_be_stored(result) and result.nbytes <= read_bytes + GROWTH_BYTES for result in results):
            continue
        for value, result in zip(node.outputs, results, strict=True):
            value.replace_all_uses_with(add_weight(model.graph, str(value.name), result), replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        folded += 1
    RemoveUnusedNodesPass()(model)
    return folded


def _reads_tied_table(node: ir.Node) -> bool:
    """Whether the node transposes a table that is also looked up: folded, the table would be stored twice.

    The head of a masked language model is tied to its embeddings. Runtimes transpose the table once, when they load it.
    """
    if node.op_type != "Transpose":
        return False
    return any(user.op_type == "Gather" and index == 0 for user, index in node.inputs[0].uses())


def _constant_inputs(node: ir.Node) -> list[Array | None] | None:
    """Return the node's inputs if it computes the same each time: known inputs only, no subgraph, no random numbers."""
    import onnx_ir as ir

    if node.domain != "" or node.op_type in (*_RANDOM, "Constant") or not any(node.inputs) or has_subgraph(node):
        return None
    arrays: list[Array | None] = []
    for value in node.inputs:
        tensor = None if value is None else ir.convenience.get_const_tensor(value)
        if value is not None and tensor is None:
            return None
        arrays.append(None if tensor is None else tensor.numpy())
    return arrays


def _evaluate(node: ir.Node, inputs: list[Array | None], opsets: dict[str, int]) -> list[Any]:
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    feeds = {value.name: array for value, array in zip(node.inputs, inputs, strict=True) if value is not None}
    return [
        np.asarray(result) if isinstance(result, np.generic) else result
        for result in ReferenceEvaluator(ir.to_proto(node), opsets=opsets).run(None, feeds)
    ]


def _can_be_stored(result: Any) -> bool:
    return isinstance(result, np.ndarray) and result.dtype != object
