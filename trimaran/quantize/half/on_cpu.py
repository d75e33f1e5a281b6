"""A half-precision graph in the form that ONNX Runtime's CPU kernels run soonest, with the numbers that its types say.

Its CPU kernels multiply matrices in fp32. Of an FP16 graph they read x and W as FP16, cast both to fp32, multiply, and
cast the result back. W is cast anew in every call, which for a short text takes longer than the product itself. Here W
is stored as the fp32 number that the cast would give:

    x (FP16) -> Cast fp32 ─┐
                           MatMul -> Cast FP16
    W (fp32) ──────────────┘

The result is rounded to FP16, as the graph says. ONNX Runtime leaves that out where another fp32 kernel reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.artifact import Artifact, Draft, Recipe
from trimaran.core.onnx_graph import add_weight, array_of, is_weight, new_node
from trimaran.core.onnx_write import write_model
from trimaran.core.store import Store
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

_ENTRY = "model.onnx"


def half_on_cpu(artifact: Artifact, store: Store) -> Artifact:
    """Return an artifact that computes the same; the artifact itself, if it is no FP16 graph of ONNX Runtime."""
    if artifact.backend != "onnxruntime" or "half" not in artifact.details:
        return artifact

    def make(folder: Path) -> Draft:
        import onnx_ir as ir

        model = ir.load(artifact.entry_path)
        cast_weights(model)
        write_model(model, folder / _ENTRY)
        return artifact.derive(folder, entry=_ENTRY, checks=artifact.checks, details=artifact.details)

    return store.produce(Recipe(step="half-on-cpu", parents=(artifact.digest,)), make)


def cast_weights(model: ir.Model) -> int:
    """Store the FP16 matrices of linear products as fp32, in place; return of how many products."""
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    graph, changed = model.graph, 0
    for node in [node for node in graph if node.op_type == "MatMul"]:
        matrix = _half_matrix(node.inputs[1])
        if matrix is None:
            continue
        name, result = str(node.inputs[1].name), node.outputs[0]
        weight = graph.initializers.get(f"{name}_fp32") or add_weight(graph, f"{name}_fp32", matrix)
        widened = new_node("Cast", [node.inputs[0]], f"{result.name}_widened", to=ir.DataType.FLOAT.value)
        graph.insert_before(node, widened)
        node.replace_input_with(0, widened.outputs[0])
        node.replace_input_with(1, weight)
        narrowed = new_node("Cast", [None], f"{result.name}_narrowed", to=ir.DataType.FLOAT16.value)
        narrowed.outputs[0].type, narrowed.outputs[0].shape = result.type, result.shape
        result.replace_all_uses_with(narrowed.outputs[0], replace_graph_outputs=True)
        result.type = ir.TensorType(ir.DataType.FLOAT)
        narrowed.replace_input_with(0, result)
        graph.insert_after(node, narrowed)
        changed += 1
    RemoveUnusedNodesPass()(model)
    return changed


def _half_matrix(value: ir.Value) -> Array | None:
    """Return the fp32 numbers of an FP16 matrix, or of an INT8 one behind a DequantizeLinear that gives FP16."""
    if is_weight(value, rank=2):
        matrix = array_of(value)
    else:
        node = value.producer()
        if node is None or node.op_type != "DequantizeLinear" or not is_weight(node.inputs[0], rank=2):
            return None
        levels, scale = array_of(node.inputs[0]), array_of(node.inputs[1])
        matrix = (levels.astype(np.float32) * scale.astype(np.float32)).astype(scale.dtype)
    return np.asarray(matrix, np.float32) if matrix.dtype == np.float16 else None
