"""Layers in whole numbers give what float gives where nothing is lost by rounding, and copies share what they can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from trimaran.core.onnx_write import write_model
from trimaran.quantize.int8.encodings import Encoding
from trimaran.quantize.int8.integer_graph import Style, integer_graph, name_nodes
from trimaran.quantize.linear_layers import linear_layers
from trimaran.runtime.onnxruntime_engine import Engine

WEIGHT = np.array([[1, -2, 3], [0, 2, -1], [-3, 1, 1], [2, 0, -2]], np.float32)
# All multiples of the step 1/16, from -7.9375 to 7.9375: rounding loses nothing.
ROWS = np.random.default_rng(4).integers(-127, 128, (5, 4)).astype(np.float32) / 16
ENCODING = Encoding(
    channels=np.arange(4),
    factors=np.ones(4, np.float32),
    offsets=np.full(4, 8, np.float32),
    step=1 / 16,
    weights=WEIGHT.astype(np.int8),
    scales=np.ones(3, np.float32),
    correction=-8 * WEIGHT.sum(axis=0),
)
# Without zero points, these rows and the offset together reach levels from -127 to 127.
NARROW_ROWS = np.trunc(ROWS * 8) / 16
SIGNED = replace(
    ENCODING,
    factors=np.full(4, 0.5, np.float32),
    offsets=np.full(4, 0.25, np.float32),
    step=1 / 32,
    scales=np.full(3, 2, np.float32),
    correction=-0.5 * WEIGHT.sum(axis=0),
)


def model_of(bias: bool) -> ir.Model:
    """y = x @ weight, with a bias or without."""
    last = "product = MatMul (copied, weight)\n y = Add (product, bias)" if bias else "y = MatMul (copied, weight)"
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 3] y) {{
            copied = Identity (x)
            {last}
        }}"""
    )
    weights = {"weight": WEIGHT, "bias": np.array([0.5, 1, -2], np.float32)}
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return name_nodes(ir.from_proto(proto))


def answer(model: ir.Model, path: Path, rows: np.ndarray = ROWS) -> np.ndarray:
    write_model(model, path)
    return np.asarray(Engine(str(path), threads=1).infer({"x": rows})["y"])


@pytest.mark.parametrize("style", ["qdq", "onnxruntime", "tensorrt"])
@pytest.mark.parametrize("bias", [True, False])
def test_whole_numbers_give_what_float_gives(tmp_path: Path, style: Style, bias: bool) -> None:
    model = model_of(bias)
    layers = linear_layers(model)
    (layer,) = layers
    encoding, rows = (SIGNED, NARROW_ROWS) if style == "tensorrt" else (ENCODING, ROWS)
    integer = integer_graph(model, layers, {layer.name: encoding}, kept=(), style=style)
    np.testing.assert_array_equal(answer(integer, tmp_path / "i.onnx", rows), answer(model, tmp_path / "f.onnx", rows))
    operators = {node.op_type for node in integer.graph}
    assert ("MatMulIntegerToFloat" in operators) is (style == "onnxruntime")
    assert "weight" not in integer.graph.initializers


def test_a_copy_with_every_layer_in_float_shares_the_weights_and_leaves_the_model_as_it_was() -> None:
    model = model_of(bias=True)
    layers = linear_layers(model)
    before = [node.op_type for node in model.graph]
    copy = integer_graph(model, layers, {}, kept={layer.name for layer in layers}, style="qdq")
    assert copy.graph.initializers["weight"].const_value is model.graph.initializers["weight"].const_value
    assert [node.op_type for node in copy.graph] == [node.op_type for node in model.graph] == before


def test_other_activations_get_a_symmetric_pair(tmp_path: Path) -> None:
    model = model_of(bias=True)
    layers = linear_layers(model)
    kept = {layer.name for layer in layers}
    paired = integer_graph(model, layers, {}, kept=kept, style="qdq", steps={"copied": 1 / 16})
    assert [node.op_type for node in paired.graph] == [
        "Identity",
        "QuantizeLinear",
        "DequantizeLinear",
        "MatMul",
        "Add",
    ]
    np.testing.assert_allclose(answer(paired, tmp_path / "p.onnx"), answer(model, tmp_path / "f.onnx"), atol=0)


def test_for_tensorrt_zero_points_are_zero_and_the_sum_comes_before_the_product() -> None:
    """Near zero an FP16 sum is nearly exact; a product before it would round the large number."""
    model = model_of(bias=True)
    layers = linear_layers(model)
    integer = integer_graph(model, layers, {layers[0].name: SIGNED}, kept=(), style="tensorrt")
    quantize = next(node for node in integer.graph if node.op_type == "QuantizeLinear")
    scaled = quantize.inputs[0].producer()
    assert scaled.op_type == "Mul" and scaled.inputs[0].producer().op_type == "Add"
    points = [node.inputs[2].const_value.numpy() for node in integer.graph if node.op_type.endswith("QuantizeLinear")]
    points += [node.inputs[2].const_value.numpy() for node in integer.graph if node.op_type == "DequantizeLinear"]
    assert len(points) == 3 and all(point.dtype == np.int8 and not point.any() for point in points)


def test_an_activation_that_is_rounded_as_it_is_gets_no_nodes_before_q() -> None:
    model = model_of(bias=True)
    layers = linear_layers(model)
    plain = replace(SIGNED, factors=np.ones(4, np.float32), offsets=np.zeros(4, np.float32))
    integer = integer_graph(model, layers, {layers[0].name: plain}, kept=(), style="tensorrt")
    quantize = next(node for node in integer.graph if node.op_type == "QuantizeLinear")
    assert quantize.inputs[0].producer().op_type == "Identity"
