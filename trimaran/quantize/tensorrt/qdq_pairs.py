"""Q/DQ pairs around activations that meet no weights: their scales, and where the nodes go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.artifact import Check
from trimaran.core.onnx_graph import add_weight, array_of, new_node
from trimaran.quantize.activations import Inputs, largest_magnitudes, magnitude_histograms
from trimaran.quantize.int8.encodings import SIGNED_LEVELS, fp16_scale
from trimaran.quantize.int8.integer_graph import ZERO_SIGNED
from trimaran.quantize.ranges import RANGE_METHODS
from trimaran.quantize.tensorrt.qdq_sites import Site

if TYPE_CHECKING:
    import onnx_ir as ir


def activation_scales(
    model: ir.Model, sites: Sequence[Site], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, float]:
    """Return the scale of each site's tensor: where clipping and rounding together lose least."""
    names = list(dict.fromkeys(str(site.tensor.name) for site in sites))
    if not names:
        return {}
    largest = largest_magnitudes(model, names, inputs, threads=threads)
    counts = magnitude_histograms(model, largest, inputs, threads=threads)
    shares = {name: RANGE_METHODS["mse"](counts[name], SIGNED_LEVELS) for name in names}
    return {
        name: float(fp16_scale(shares[name] * largest[name] / SIGNED_LEVELS)) if largest[name] > 0 else 1.0
        for name in names
    }


def insert_pairs(model: ir.Model, sites: Sequence[Site], scales: Mapping[str, float]) -> None:
    """Insert, in place, one Q/DQ pair for each tensor; the sites' readers read what it gives."""
    graph = model.graph
    by_tensor: dict[ir.Value, list[Site]] = {}
    for site in sites:
        by_tensor.setdefault(site.tensor, []).append(site)
    for tensor, reading in by_tensor.items():
        zero = graph.initializers.get(ZERO_SIGNED) or add_weight(graph, ZERO_SIGNED, np.int8(0))
        # A linear layer may have a pair with names of its own on the same tensor.
        name = f"{tensor.name}_activation"
        encoding = [add_weight(graph, f"{name}_scale", np.float32(scales[str(tensor.name)])), zero]
        quantize = new_node("QuantizeLinear", [tensor, *encoding], f"{name}_q")
        dequantize = new_node("DequantizeLinear", [quantize.outputs[0], *encoding], f"{name}_dq")
        tensor.producer().append([quantize, dequantize])
        for reader, side in (entry for site in reading for entry in site.readers):
            reader.replace_input_with(side, dequantize.outputs[0])


def pair_checks(model: ir.Model, *, linear: int) -> tuple[Check, ...]:
    """Check, in the finished graph, what TensorRT asks of explicit INT8."""
    integer, shifted = 0, 0
    for node in model.graph:
        if node.op_type == "MatMul":
            makers = [value.producer() for value in node.inputs]
            integer += all(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers)
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            shifted += bool(array_of(node.inputs[2]).any())
    return (
        Check(name="matrix products between Q/DQ", observed=integer, limit=linear, comparison=">="),
        Check(name="zero points other than zero", observed=shifted, limit=0, comparison="=="),
    )
