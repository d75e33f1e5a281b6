"""Raises a graph's opset to the one that half-precision scales need, by rewriting the operators that changed.

ONNX's own converter copies the whole model; onnxscript's begins at opset 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.errors import ToolError
from trimaran.core.onnx_graph import add_weight

if TYPE_CHECKING:
    import onnx_ir as ir

# Reductions take their axes as an input from opset 18 on; ReduceSum has since 13.
_AXES_BECAME_INPUT = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip
OLDEST = 17
# QuantizeLinear and DequantizeLinear take fp16 and bf16 scales from opset 19 on.
WANTED = 19


def raise_opset(model: ir.Model) -> int:
    """Raise the opset in place; keep a newer one. Return the opset that the graph has now."""
    import onnx_ir as ir

    opset = int(model.graph.opset_imports.get("", 0))
    if opset < OLDEST:
        raise ToolError(
            f"A graph of opset {OLDEST} or newer is wanted, found {opset or 'none'}.", hint="Export it again."
        )
    if opset < 18:
        for node in model.graph:
            if node.op_type in _AXES_BECAME_INPUT and "axes" in node.attributes:
                axes = np.array(node.attributes.pop("axes").as_ints(), np.int64)
                node.resize_inputs(2)
                node.replace_input_with(1, add_weight(model.graph, f"{node.outputs[0].name}_axes", axes))
            elif node.op_type == "Split" and len(node.inputs) < 2:
                node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))
    if opset < WANTED:
        model.graph.opset_imports[""] = WANTED
        model.ir_version = max(model.ir_version, 9)
    return max(opset, WANTED)
