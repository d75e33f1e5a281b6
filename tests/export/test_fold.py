"""Folding gives the values that the nodes would compute, copies no weight and lets no constant grow."""

from __future__ import annotations

import numpy as np

from trimaran.export.fold import fold_constants


def test_folding_computes_what_the_nodes_would_and_leaves_what_would_grow() -> None:
    import onnx

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
    model = onnx.parser.parse_model(text)
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    weights = {"weight": weight, "bias": np.ones(4, np.float32), "unread": np.ones(9, np.float32)}
    assert fold_constants(model, weights) == 2
    assert sorted(weights) == ["bias", "scaled"]
    np.testing.assert_array_equal(weights["scaled"], 2 * weight.T)
    assert [node.op_type for node in model.graph.node] == [
        "MatMul", "Constant", "Expand", "RandomNormalLike", "Add", "Identity",
    ]  # fmt: skip


def test_a_turned_weight_is_a_view_until_it_is_written() -> None:
    import onnx

    text = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 3] y) {
        turned = Transpose <perm = [1, 0]> (weight)
        y = MatMul (x, turned)
    }"""
    weight = np.zeros((3, 4), np.float32)
    weights = {"weight": weight}
    fold_constants(onnx.parser.parse_model(text), weights)
    assert np.shares_memory(weights["turned"], weight)
