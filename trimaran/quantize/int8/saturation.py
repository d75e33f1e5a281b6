"""Whether an engine's 8-bit products are exact on this CPU, found by comparing them with exact integers.

Without VNNI instructions, a CPU adds products of unsigned and signed bytes in pairs, in 16 bits, which saturate: twice
255 · 127 is 64,770, but 16 bits end at 32,767. An engine then answers wrongly and says nothing. Weights of 7 bits (up
to ±63) cannot saturate: twice 255 · 63 is 32,130.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trimaran.core.backends import engine_class
from trimaran.core.errors import ValidationError
from trimaran.core.scratch import ScratchFolder
from trimaran.runtime.text import Array

WIDE, NARROW = 127, 63
_DEPTH, _OUTPUTS, _ROWS = 128, 32, 16
# By backend: the integer product of values and weights. Steps and scales are 1, so the results are the integers.
_PRODUCTS = {
    "onnxruntime": "result = com.microsoft.MatMulIntegerToFloat (bytes, weights, one, scales, zero, zeros)",
    "openvino": """left = DequantizeLinear (bytes, one, zero)
        right = DequantizeLinear <axis = 1> (weights, scales)
        result = MatMul (left, right)""",
}


def largest_weight(backend: str) -> int:
    """Return 127 if the engine's products of extreme bytes are exact, 63 if only narrower weights are."""
    for largest in (WIDE, NARROW):
        if wrong_products(backend, largest) == 0:
            return largest
    raise ValidationError(
        f"{backend}'s 8-bit products are not exact on this CPU even with 7-bit weights.", hint="Use fp32 here."
    )


def wrong_products(backend: str, largest: int) -> int:
    """Return how many products of extreme and random bytes differ from the exact integers."""
    values, weights = extreme_bytes(largest)
    exact = values.astype(np.int64) @ weights.astype(np.int64)
    with ScratchFolder("saturation") as folder:
        path = Path(folder) / "product.onnx"
        _write_product(path, weights, _PRODUCTS[backend])
        engine: Any = engine_class(backend)(str(path), threads=1)
        try:
            results = engine.infer({"values": values.astype(np.float32)})["result"]
        finally:
            engine.close()
    return int((np.rint(results).astype(np.int64) != exact).sum())


def extreme_bytes(largest: int) -> tuple[Array, Array]:
    """Return activations of 0 to 255 and weights up to ±`largest`; the first rows and columns are at their ends."""
    generator = np.random.default_rng(3)
    values = generator.integers(0, 256, (_ROWS, _DEPTH)).astype(np.uint8)
    weights = generator.integers(-largest, largest + 1, (_DEPTH, _OUTPUTS)).astype(np.int8)
    values[0], weights[:, 0], weights[:, 1] = 255, largest, -largest
    return values, weights


def _write_product(path: Path, weights: Array, product: str) -> None:
    import onnx

    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>
    product (float[rows, {_DEPTH}] values) => (float[rows, {_OUTPUTS}] result) {{
        bytes = QuantizeLinear (values, one, zero)
        {product}
    }}""")
    constants = {
        "one": np.float32(1),
        "zero": np.uint8(0),
        "weights": weights,
        "scales": np.ones(_OUTPUTS, np.float32),
        "zeros": np.zeros(_OUTPUTS, np.int8),
    }
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    onnx.save(model, str(path))
