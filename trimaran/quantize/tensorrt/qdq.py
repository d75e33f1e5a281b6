"""Explicit symmetric INT8 for TensorRT: Q/DQ pairs with zero points of zero, the rest of the graph in FP16.

TensorRT takes precision from the graph. An activation that passes through QuantizeLinear and DequantizeLinear, and then
meets a weight behind a DequantizeLinear of its own, is multiplied in INT8:

    x -> QuantizeLinear -> DequantizeLinear ─┐
                                             MatMul
    int8 weight ------> DequantizeLinear ────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import spread
from trimaran.core.errors import ToolError
from trimaran.core.onnx_graph import add_weight, array_of, new_node
from trimaran.core.onnx_write import write_model
from trimaran.quantize.activations import calibration_facts, calibration_inputs
from trimaran.quantize.half.fp16 import check_types, half_facts, overflowing, prepare
from trimaran.quantize.half.half_graph import HALF_TYPES, to_half
from trimaran.quantize.ranges import whole_numbers
from trimaran.quantize.settings import MadeCandidate, MakerSettings
from trimaran.quantize.tensorrt.qdq_scales import (
    LEVELS,
    activation_scales,
    choose_scales,
    read_instead,
    smooth,
    weight_scale,
)
from trimaran.quantize.tensorrt.qdq_sites import Site, attention_sites, linear_sites, residual_sites

if TYPE_CHECKING:
    import onnx_ir as ir

ENTRY = "model.onnx"
SAMPLES = 128
OVERFLOW_SAMPLES = 33
# A layer whose result loses more than this share of each token's energy stays in FP16.
MOST_LOST = 2e-3


def tensorrt_int8(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers in INT8."""
    return _make(parent, folder, settings)


def tensorrt_int8_attention(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers and both attention products in INT8."""
    return _make(parent, folder, settings, attention=True)


def tensorrt_int8_full(parent: Artifact, folder: Path, settings: MakerSettings) -> MadeCandidate:
    """Linear layers, attention products and the skipped side of residual sums in INT8."""
    return _make(parent, folder, settings, attention=True, residual=True)


def _make(
    parent: Artifact, folder: Path, settings: MakerSettings, *, attention: bool = False, residual: bool = False
) -> MadeCandidate:
    half, threads = HALF_TYPES["fp16"], settings.threads
    texts = spread(settings.calibration, SAMPLES)
    inputs = calibration_inputs(parent, texts, samples=SAMPLES)
    model, clipping = prepare(parent, half, inputs, threads=threads)
    kept = overflowing(model, half, inputs[-OVERFLOW_SAMPLES:], threads=threads)
    # Nobody reads the answers at padding. The last inputs are the padded ones: scales are taken without them.
    inputs = inputs[:-1]
    linear = linear_sites(model, keep=kept)
    choices = choose_scales(model, linear, inputs, threads=threads)
    in_half = {choice.weights for choice in choices if choice.lost > MOST_LOST}
    linear = [site for site in linear if site.weights not in in_half]
    if not linear:
        raise ToolError(
            f"{parent.name} has no linear layer that can be quantised ({len(in_half)} lose too much).",
            hint="Use fp16.",
        )
    linear, linear_scales = smooth(model, linear, [choice for choice in choices if choice.weights not in in_half])
    others = [
        *(attention_sites(model, keep=kept) if attention else ()),
        *(residual_sites(model, keep=kept) if residual else ()),
    ]
    scales = activation_scales(model, others, inputs, threads=threads) | linear_scales
    insert_pairs(model, [*linear, *others], scales)
    to_half(model, half, keep=kept)
    check_types(model)
    write_model(model, folder / ENTRY)
    return MadeCandidate(
        entry=ENTRY,
        checks=(clipping, *pair_checks(model, linear=sum(len(site.readers) for site in linear))),
        details={
            "half": half_facts(model, "fp16", kept),
            "quantised": {"linear": len(linear), "attention": attention, "residual": residual},
            "layers": {
                choice.weights[0].name: {**choice.facts(), "type": "fp16" if choice.weights in in_half else "int8"}
                for choice in choices
            },
            "calibration": calibration_facts(texts),
        },
    )


def insert_pairs(model: ir.Model, sites: Sequence[Site], scales: Mapping[str, float]) -> None:
    """Insert, in place, one Q/DQ pair for each activation and one DQ for each weight, whose INT8 numbers replace it."""
    graph = model.graph
    for weight in dict.fromkeys(weight for site in sites for weight in site.weights):
        matrix = array_of(weight)
        scale = weight_scale(matrix)
        levels = whole_numbers(matrix, scale, levels=LEVELS).astype(np.int8)
        inputs = [
            add_weight(graph, f"{weight.name}_int8", levels),
            add_weight(graph, f"{weight.name}_scale", scale),
            _zeros(graph, len(scale)),
        ]
        node = new_node("DequantizeLinear", inputs, f"{weight.name}_dq", axis=1)
        graph.insert_before(graph[0], node)
        weight.replace_all_uses_with(node.outputs[0])
    by_tensor: dict[ir.Value, list[Site]] = {}
    for site in sites:
        by_tensor.setdefault(site.tensor, []).append(site)
    for tensor, reading in by_tensor.items():
        encoding = [add_weight(graph, f"{tensor.name}_scale", np.float32(scales[tensor.name])), _zeros(graph)]
        quantize = new_node("QuantizeLinear", [tensor, *encoding], f"{tensor.name}_q")
        dequantize = new_node("DequantizeLinear", [quantize.outputs[0], *encoding], f"{tensor.name}_dq")
        readers = tuple(reader for site in reading for reader in site.readers)
        read_instead(Site(tensor, readers), [quantize, dequantize])


def _zeros(graph: ir.Graph, size: int | None = None) -> ir.Value:
    """Return zero points of zero, as the one weight of this size."""
    name = "int8_zero" if size is None else f"int8_zeros_{size}"
    if name in graph.initializers:
        return graph.initializers[name]
    return add_weight(graph, name, np.zeros(() if size is None else size, np.int8))


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
