"""Folding gives the values that the nodes would compute, copies no weight and lets no constant grow."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from trimaran.export.fold import fold_constants


def model_with(text: str, **weights: np.ndarray) -> ir.Model:
    """The graph of the text, which names its weights as inputs that nothing declares."""
    proto = onnx.parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array[:0], name))
    model = ir.from_proto(proto)
    for name, array in weights.items():
        model.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    return model


def test_folding_computes_what_the_nodes_would_and_leaves_what_would_grow() -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 3] y, float[m, 4] wide) {
        turned = Transpose <perm = [1, 0]> (weight)
        two = Constant <value = float {2}> ()
        scaled = Mul (turned, two)
        y = MatMul (x, scaled)
        shape = Constant <value = int64[2] {100000, 4}> ()
        grown = Expand (bias, shape)
        noise = RandomNormalLike (bias)
        kept = Add (grown, noise)
        wide = Identity (kept)
    }"""
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = model_with(text, weight=weight, bias=np.ones(4, np.float32), unread=np.ones(9, np.float32))
    assert fold_constants(model) == 2
    weights = {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}
    assert sorted(weights) == ["bias", "scaled"]
    np.testing.assert_array_equal(weights["scaled"], 2 * weight.T)
    assert [node.op_type for node in model.graph] == [
        "MatMul", "Constant", "Expand", "RandomNormalLike", "Add", "Identity",
    ]  # fmt: skip


def test_a_turned_weight_is_a_view_until_it_is_written() -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 3] y) {
        turned = Transpose <perm = [1, 0]> (weight)
        y = MatMul (x, turned)
    }"""
    weight = np.zeros((3, 4), np.float32)
    model = model_with(text, weight=weight)
    fold_constants(model)
    assert np.shares_memory(model.graph.initializers["turned"].const_value.numpy(), weight)
