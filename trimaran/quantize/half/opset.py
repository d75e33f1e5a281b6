"""Raises a graph's opset to the one that half-precision scales need, by rewriting the operators that changed."""

from __future__ import annotations

from typing import Any

from trimaran.core.errors import ToolError

# Reductions take their axes as an input from opset 18 on; ReduceSum has since 13.
_AXES_BECAME_INPUT = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip
OLDEST = 17
# QuantizeLinear and DequantizeLinear take fp16 and bf16 scales from opset 19 on.
WANTED = 19


def raise_opset(model: Any, wanted: int = WANTED) -> int:
    """In place; a newer opset is kept. Returns the opset that the graph has now."""
    import onnx

    entry = next((entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if entry is None or entry.version < OLDEST:
        found = entry.version if entry else "none"
        raise ToolError(f"A graph of opset {OLDEST} or newer is wanted, found {found}.", hint="Export it again.")
    if entry.version >= wanted:
        return int(entry.version)
    if entry.version < 18 <= wanted:
        for node in model.graph.node:
            if node.op_type in _AXES_BECAME_INPUT:
                _axes_to_input(model.graph, node)
            elif node.op_type == "Split" and len(node.input) < 2:
                node.attribute.append(onnx.helper.make_attribute("num_outputs", len(node.output)))
    entry.version = wanted
    model.ir_version = max(model.ir_version, 9)
    return wanted


def _axes_to_input(graph: Any, node: Any) -> None:
    import numpy as np
    import onnx

    axes = next((attribute for attribute in node.attribute if attribute.name == "axes"), None)
    if axes is None:
        return
    name = f"{node.output[0]}_axes"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(list(axes.ints), np.int64), name))
    node.attribute.remove(axes)
    node.input.append(name)
