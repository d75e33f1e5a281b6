"""Explicit symmetric INT8 for TensorRT: Q/DQ pairs with zero points of zero, the rest of the graph in FP16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.core.artifact import Artifact, Check
from trimaran.core.corpus import digest_of_texts, spread
from trimaran.core.errors import ToolError
from trimaran.core.onnx_graph import save_graph
from trimaran.quantize.activations import calibration_inputs
from trimaran.quantize.half.fp16 import check_types, half_facts, overflowing, prepare
from trimaran.quantize.half.half_graph import HALF_TYPES, to_half
from trimaran.quantize.settings import Made, Settings
from trimaran.quantize.tensorrt.qdq_scales import (
    LEVELS,
    activation_scales,
    choose_scales,
    half_scale,
    insert_before_readers,
    smooth,
)
from trimaran.quantize.tensorrt.qdq_sites import Site, attention_sites, linear_sites, residual_sites

Array = npt.NDArray[Any]
ENTRY = "model.onnx"
SAMPLES = 128
OVERFLOW_SAMPLES = 33
# A layer whose result loses more than this share of each token's energy stays in FP16.
MOST_LOST = 2e-3


def tensorrt_int8(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """Linear layers in INT8."""
    return _make(parent, folder, settings)


def tensorrt_int8_attention(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """Linear layers and both attention products in INT8."""
    return _make(parent, folder, settings, attention=True)


def tensorrt_int8_full(parent: Artifact, folder: Path, settings: Settings) -> Made:
    """Linear layers, attention products and the skipped side of residual sums in INT8."""
    return _make(parent, folder, settings, attention=True, residual=True)


def _make(
    parent: Artifact, folder: Path, settings: Settings, *, attention: bool = False, residual: bool = False
) -> Made:
    half, threads = HALF_TYPES["fp16"], settings.threads
    texts = spread(settings.calibration, SAMPLES)
    inputs = calibration_inputs(parent, texts, samples=SAMPLES)
    model, prepared = prepare(parent, half, inputs, threads=threads)
    kept = overflowing(model, half, inputs[-OVERFLOW_SAMPLES:], threads=threads)
    # What stands at padding is nobody's answer: scales are taken from whole texts alone.
    inputs = inputs[:-1]
    linear = linear_sites(model, keep=kept)
    choices = choose_scales(model, linear, inputs, threads=threads)
    in_half = {choice.weights for choice in choices if choice.lost > MOST_LOST}
    linear = [site for site in linear if site.weights not in in_half]
    smooth(model, linear, [choice for choice in choices if choice.weights not in in_half])
    quantised = {weight for site in linear for weight in site.weights}
    linear = [site for site in linear_sites(model, keep=kept) if set(site.weights) <= quantised]
    if not linear:
        raise ToolError(
            f"{parent.name} has no linear layer that can be quantised ({len(in_half)} lose too much).",
            hint="Use fp16.",
        )
    extra = [
        *(attention_sites(model, keep=kept) if attention else ()),
        *(residual_sites(model, keep=kept) if residual else ()),
    ]
    scales = activation_scales(model, extra, inputs, threads=threads)
    for choice in choices:
        scales |= choice.scales if choice.weights not in in_half else {}
    insert_pairs(model, [*linear, *extra], scales)
    to_half(model, half, keep=kept)
    check_types(model)
    save_graph(model, folder / ENTRY)
    return Made(
        entry=ENTRY,
        checks=(prepared, *pair_checks(model, linear=sum(len(site.places) for site in linear))),
        details={
            "half": half_facts(model, "fp16", kept),
            "quantised": {"linear": len(linear), "attention": attention, "residual": residual},
            "layers": {
                choice.weights[0]: {**choice.facts(), "type": "fp16" if choice.weights in in_half else "int8"}
                for choice in choices
            },
            "calibration": {"texts": len(texts), "digest": digest_of_texts(texts)},
        },
    )


def insert_pairs(model: Any, sites: Sequence[Site], scales: Mapping[str, float]) -> None:
    """In place: one Q/DQ pair an activation, one DQ a weight, whose INT8 values replace it."""
    import onnx

    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    zeros: set[int] = set()
    for weight in dict.fromkeys(name for site in sites for name in site.weights):
        array = onnx.numpy_helper.to_array(tensors[weight])
        scale = half_scale(np.abs(array).max(axis=0) / LEVELS)
        levels = np.clip(np.rint(array / scale), -LEVELS, LEVELS).astype(np.int8)
        tensors[weight].CopyFrom(onnx.numpy_helper.from_array(levels, f"{weight}_int8"))
        graph.initializer.append(onnx.numpy_helper.from_array(scale, f"{weight}_scale"))
        zeros.add(array.shape[1])
        values = [f"{weight}_int8", f"{weight}_scale", f"int8_zeros_{array.shape[1]}"]
        graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", values, [weight], f"{weight}_dq", axis=1))
    graph.initializer.extend(
        onnx.numpy_helper.from_array(np.zeros(size, np.int8), f"int8_zeros_{size}") for size in sorted(zeros)
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.int8(0), "int8_zero"))
    shift = len(dict.fromkeys(name for site in sites for name in site.weights))
    places = {(index + shift, side): site.tensor for site in sites for index, side in site.places}
    for name, scale in scales.items():
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(scale), f"{name}_scale"))
    insert_before_readers(graph, places, lambda name, _: _pair(name))


def pair_checks(model: Any, *, linear: int) -> tuple[Check, ...]:
    """What TensorRT asks of explicit INT8, counted in the finished graph."""
    import onnx

    nodes, tensors = model.graph.node, {tensor.name: tensor for tensor in model.graph.initializer}
    made_by = {name: node.op_type for node in nodes for name in node.output}
    integer = sum(
        node.op_type == "MatMul" and all(made_by.get(name) == "DequantizeLinear" for name in node.input[:2])
        for node in nodes
    )
    points = [node.input[2] for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
    shifted = sum(bool(onnx.numpy_helper.to_array(tensors[name]).any()) for name in points)
    return (
        Check(name="matrix products between Q/DQ", observed=integer, limit=linear, comparison=">="),
        Check(name="zero points other than zero", observed=shifted, limit=0, comparison="=="),
    )


def _pair(name: str) -> list[Any]:
    import onnx

    scale = [f"{name}_scale", "int8_zero"]
    return [
        onnx.helper.make_node("QuantizeLinear", [name, *scale], [f"{name}_q"], f"{name}_q"),
        onnx.helper.make_node("DequantizeLinear", [f"{name}_q", *scale], [f"{name}_dq"], f"{name}_dq"),
    ]
