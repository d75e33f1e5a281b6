"""The form for the CPU answers to the last bit as the graph does; only its weights are cast beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from trimaran.core.onnx_write import write_model
from trimaran.quantize.half.on_cpu import cast_weights
from trimaran.runtime.onnxruntime_engine import Engine

GENERATOR = np.random.default_rng(5)
WEIGHT = GENERATOR.standard_normal((32, 16)).astype(np.float16)
LEVELS = GENERATOR.integers(-127, 128, (32, 16)).astype(np.int8)
SCALES = GENERATOR.uniform(1e-3, 1e-2, 16).astype(np.float16)
ROWS = GENERATOR.standard_normal((4, 32)).astype(np.float32)


def model_of(weight: str) -> ir.Model:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 19]> g (float[n, 32] x) => (float[n, 16] y) {{
            half = Cast <to = 10> (x)
            dequantized = DequantizeLinear <axis = 1> (levels, scales)
            product = MatMul (half, {weight})
            total = Add (product, bias)
            y = Cast <to = 1> (total)
        }}"""
    )
    weights = {"weight": WEIGHT, "levels": LEVELS, "scales": SCALES, "bias": SCALES}
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


def answer(model: ir.Model, path: Path) -> np.ndarray:
    write_model(model, path)
    # Pairs as they are: fused into integer products they would round otherwise.
    engine = Engine(str(path), threads=1, options={"session.disable_quant_qdq": "1"})
    return np.asarray(engine.infer({"x": ROWS})["y"])


@pytest.mark.parametrize("weight", ["weight", "dequantized"])
def test_every_number_between_two_nodes_is_one_of_fp16(tmp_path: Path, weight: str) -> None:
    """As the graph's types say. ONNX Runtime itself leaves some of these roundings out."""
    model = model_of(weight)
    before = answer(model, tmp_path / "before.onnx")
    assert cast_weights(model) == 1
    product = next(node for node in model.graph if node.op_type == "MatMul")
    assert product.inputs[1].const_value.dtype == ir.DataType.FLOAT
    after = answer(model, tmp_path / "after.onnx")
    dequantized = (LEVELS.astype(np.float32) * SCALES.astype(np.float32)).astype(np.float16)
    matrix = (WEIGHT if weight == "weight" else dequantized).astype(np.float32)
    rounded = (ROWS.astype(np.float16).astype(np.float32) @ matrix).astype(np.float16)
    literal = (rounded + SCALES).astype(np.float32)
    # Half a unit in the last place of FP16, because fp32 sums have another order.
    np.testing.assert_allclose(after, literal, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-3)
    assert np.abs(after - literal).mean() < np.abs(before - literal).mean()


def test_a_graph_in_fp32_stays_as_it_is() -> None:
    model = model_of("weight")
    weight = model.graph.initializers["weight"]
    weight.const_value = ir.Tensor(WEIGHT.astype(np.float32), name="weight")
    assert cast_weights(model) == 0
