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


def _asking(question: str = "Not") -> list[onnx.NodeProto]:
    """As DeBERTa asks whether it has as many queries as keys."""
    branches = [
        helper.make_graph(
            [helper.make_node(operator, ["x"], [f"{name}_y"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, operator in (("a", "Neg"), ("b", "Identity"))
    ]
    return [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["size"]),
        helper.make_node("Equal", ["size", "size"], ["is_equal"]),
        helper.make_node(question, ["is_equal"], ["differs"]),
        helper.make_node("If", ["differs"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Abs", ["chosen"], ["y"]),
    ]


GRAPHS: dict[str, Sequence[onnx.NodeProto]] = {
    "EyeLike": [helper.make_node("EyeLike", ["x"], ["eye"]), helper.make_node("Mul", ["x", "eye"], ["y"])],
    "Gemm": [helper.make_node("Gemm", ["x", "matrix", "bias"], ["y"])],
    "If": _asking(),
}


def _model(nodes: Sequence[onnx.NodeProto]) -> ir.Model:
    weights = {
        "matrix": MATRIX,
        "bias": BIAS,
        "zero": np.int64(0),
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
        _asking("Identity"),
    ],
    ids=["scaled Gemm", "shifted EyeLike", "If of another question"],
)
def test_what_it_does_not_know_stays(nodes: list[onnx.NodeProto]) -> None:
    model = _model(nodes)
    assert lower(model) == 0
    assert [node.op_type for node in model.graph] == [node.op_type for node in nodes]
