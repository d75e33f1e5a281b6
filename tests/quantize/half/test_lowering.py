"""What TensorRT's parser cannot read becomes operators that it can, with the same answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from trimaran.core.onnx_write import write_model
from trimaran.quantize.half.lowering import lower
from trimaran.runtime.onnxruntime_engine import Engine

MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.array([1, 2, 3], np.float32)


def _squeezing(then: str = "Squeeze") -> list[onnx.NodeProto]:
    """As TorchScript writes `squeeze(0)` of a shape that it does not know."""
    branches = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])
        for name, nodes in (
            ("a", [helper.make_node(then, ["wide"] + (["first"] if then == "Squeeze" else []), ["a_y"])]),
            ("b", [helper.make_node("Identity", ["wide"], ["b_y"])]),
        )
    ]
    return [
        helper.make_node("Unsqueeze", ["x", "first"], ["wide"]),
        helper.make_node("Shape", ["wide"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]


GRAPHS: dict[str, Sequence[onnx.NodeProto]] = {
    "EyeLike": [helper.make_node("EyeLike", ["x"], ["eye"]), helper.make_node("Mul", ["x", "eye"], ["y"])],
    "Gemm": [helper.make_node("Gemm", ["x", "matrix", "bias"], ["y"])],
    "If": _squeezing(),
}


def _model(nodes: Sequence[onnx.NodeProto]) -> ir.Model:
    weights = {
        "matrix": MATRIX,
        "bias": BIAS,
        "first": np.array([0], np.int64),
        "zero": np.int64(0),
        "one": np.int64(1),
    }
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


@pytest.mark.parametrize("operator", GRAPHS)
def test_a_rewritten_graph_answers_as_before(tmp_path: Path, operator: str) -> None:
    model = _model(GRAPHS[operator])
    write_model(model, tmp_path / "before.onnx")
    assert lower(model) == 1
    write_model(model, tmp_path / "after.onnx")
    assert operator not in {node.op_type for node in model.graph}
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    before, after = (
        Engine(str(tmp_path / name), threads=1).infer({"x": x})["y"] for name in ("before.onnx", "after.onnx")
    )
    assert np.array_equal(before, after)


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Gemm", ["x", "matrix"], ["y"], alpha=0.5)],
        [helper.make_node("EyeLike", ["x"], ["y"], k=1)],
        _squeezing("Neg"),
    ],
    ids=["scaled Gemm", "shifted EyeLike", "If of something else"],
)
def test_what_it_does_not_know_stays(nodes: list[onnx.NodeProto]) -> None:
    model = _model(nodes)
    assert lower(model) == 0
    assert [node.op_type for node in model.graph] == [node.op_type for node in nodes]
