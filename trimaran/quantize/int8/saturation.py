"""Whether an engine's 8-bit products are exact on this CPU, found by running them against an exact integer reference.

Without VNNI instructions, products of unsigned and signed bytes are summed in pairs into 16 bits, which saturate: an
engine then answers wrongly and says nothing. Weights of 7 bits (up to ±63) cannot saturate.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.backends import engine_class
from trimaran.core.errors import ValidationError

Array = npt.NDArray[Any]
WIDE, NARROW = 127, 63
_DEPTH, _OUTPUTS, _ROWS = 128, 32, 16


def largest_weight(backend: str) -> int:
    """127 where the engine's products of extreme bytes are exact, 63 where only narrower weights are."""
    for largest in (WIDE, NARROW):
        if wrong_products(backend, largest) == 0:
            return largest
    raise ValidationError(
        f"{backend}'s 8-bit products are not exact on this CPU even with 7-bit weights.", hint="Use fp32 here."
    )


def wrong_products(backend: str, largest: int) -> int:
    """How many of the products of extreme and random bytes differ from the exact integers."""
    values, weights = extreme_bytes(largest)
    wanted = values.astype(np.int64) @ weights.astype(np.int64)
    with tempfile.TemporaryDirectory(prefix="trimaran-") as folder:
        path = Path(folder) / "product.onnx"
        _product_graph(path, weights, integer_operator=backend == "onnxruntime")
        engine: Any = engine_class(backend)(str(path), threads=1)
        try:
            found = engine.infer({"values": values.astype(np.float32)})["result"]
        finally:
            engine.close()
    return int((np.rint(found).astype(np.int64) != wanted).sum())


def extreme_bytes(largest: int) -> tuple[Array, Array]:
    """Activations of 0 to 255 and weights up to ±`largest`; the first rows and columns are at their ends."""
    generator = np.random.default_rng(3)
    values = generator.integers(0, 256, (_ROWS, _DEPTH)).astype(np.uint8)
    weights = generator.integers(-largest, largest + 1, (_DEPTH, _OUTPUTS)).astype(np.int8)
    values[0], weights[:, 0], weights[:, 1] = 255, largest, -largest
    return values, weights


def _product_graph(path: Path, weights: Array, *, integer_operator: bool) -> None:
    """Steps and scales of 1, so that the results are the integers themselves."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    one, scales = np.float32(1), np.ones(weights.shape[1], np.float32)
    constants = {"one": one, "zero": np.uint8(0), "weights": weights, "scales": scales}
    constants["zeros"] = np.zeros(weights.shape[1], np.int8)
    nodes = [helper.make_node("QuantizeLinear", ["values", "one", "zero"], ["bytes"])]
    if integer_operator:
        inputs = ["bytes", "weights", "one", "scales", "zero", "zeros"]
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, ["result"], domain="com.microsoft"))
    else:
        nodes += [
            helper.make_node("DequantizeLinear", ["bytes", "one", "zero"], ["left"]),
            helper.make_node("DequantizeLinear", ["weights", "scales"], ["right"], axis=1),
            helper.make_node("MatMul", ["left", "right"], ["result"]),
        ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, ["rows", weights.shape[0]])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["rows", weights.shape[1]])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=9), str(path))
