"""Graphs of a few nodes, written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper


def chain(*nodes: Any, constants: dict[str, Any] | None = None, opset: int = 19, reduced: bool = False) -> Any:
    """x of 2 columns through nodes to y."""
    graph = helper.make_graph(
        list(nodes),
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"] if reduced else ["batch", 2])],
        [numpy_helper.from_array(_constant(value), name) for name, value in (constants or {}).items()],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def _constant(value: Any) -> Any:
    """Plain numbers are fp32."""
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else np.asarray(value, np.float32)
