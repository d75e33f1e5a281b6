"""Chooses, layer by layer, how far to smooth and where to clip, by what the layer's own result loses on real text.

TensorRT's INT8 is symmetric: a number x becomes round(x / scale), from -127 to 127, and there is no zero point. Each
layer tries a few strengths of SmoothQuant with a few ranges and keeps the pair whose product, computed with the rounded
numbers, is nearest to the exact one. Scales are stored in FP16, so weights are rounded with the scale that FP16 holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trimaran.core.onnx_graph import add_weight, array_of, new_node
from trimaran.quantize.activations import (
    Inputs,
    Samples,
    largest_magnitudes,
    magnitude_histograms,
    sampled_rows,
    smoothing_divisor,
)
from trimaran.quantize.ranges import BINS, RANGE_METHODS, RangeMethod, kept_shares, magnitude_counts, whole_numbers
from trimaran.quantize.tensorrt.qdq_sites import Site, ValueProjection, is_attention_result, value_projections
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

LEVELS = 127
# FP16 scales below its smallest normal number would lose bits; a channel this small rounds to zero anyway.
SMALLEST_SCALE = 2.0**-14
ROWS = 256
STRENGTHS = (0.0, 0.5, 0.65, 0.8, 0.95)


@dataclass(frozen=True)
class ScaleChoice:
    """How the inputs of the layers with these weights are rounded."""

    weights: tuple[ir.Value, ...]
    # The layers that make V, where the input is an attention's result: the divisor goes into them.
    values: tuple[ValueProjection, ...]
    # By channel; None without smoothing.
    divisor: Array | None
    # By the name of the input, before smoothing.
    scales: Mapping[str, float]
    strength: float
    method: RangeMethod
    # The share of the largest magnitude that the range keeps.
    clipping: float
    # The mean share of a token's energy (its sum of squares) that the result loses.
    lost: float

    def moved_to(self, copy: ir.Model) -> ScaleChoice:
        """Return the same choice for a copy of the graph, whose values have the same names."""
        import onnx_ir as ir

        values = ir.convenience.create_value_mapping(copy.graph)
        weights = tuple(values[str(weight.name)] for weight in self.weights)
        results = [values[name] for name in self.scales]
        return replace(self, weights=weights, values=value_projections(results) if self.values else ())

    def facts(self) -> dict[str, Any]:
        return {
            "smoothing": self.strength,
            "range": self.method,
            "clipping": round(self.clipping, 4),
            "relative_error": round(self.lost, 6),
        }


def choose_scales(
    model: ir.Model, sites: Sequence[Site], inputs: Sequence[Inputs], *, threads: int
) -> list[ScaleChoice]:
    """Return one choice for each set of weights. Layers that share their weights (ALBERT) share the divisor."""
    if not sites:
        return []
    samples = sampled_rows(model, [str(site.tensor.name) for site in sites], inputs, rows=ROWS, threads=threads)
    groups: dict[tuple[ir.Value, ...], list[ir.Value]] = {}
    for site in sites:
        groups.setdefault(site.weights, []).append(site.tensor)
    choices = []
    for weights, tensors in groups.items():
        attended = any(map(is_attention_result, tensors))
        values = value_projections(tensors) if attended else ()
        # The fused attention kernel quantises its own result, but only if no division stands between.
        strengths = (0.0,) if attended and not values else STRENGTHS
        choices.append(_choose(weights, values, {str(value.name): samples[value.name] for value in tensors}, strengths))
    return choices


def _choose(
    weights: tuple[ir.Value, ...],
    values: tuple[ValueProjection, ...],
    samples: Mapping[str, Samples],
    strengths: Sequence[float],
) -> ScaleChoice:
    matrix = np.concatenate([array_of(weight) for weight in weights], axis=1)
    peak = np.max([sample.peak for sample in samples.values()], axis=0)
    exact = {name: sample.rows @ matrix for name, sample in samples.items()}
    # Each token counts alike: a layer norm follows, and one outlier token would otherwise outweigh all others.
    energies = {name: np.maximum(np.square(result).sum(axis=1), 1e-12) for name, result in exact.items()}
    choices = []
    for strength in strengths:
        divisor = smoothing_divisor(peak, np.abs(matrix).max(axis=1), strength) if strength else np.float32(1.0)
        rounded = _rounded_weights(matrix * np.reshape(divisor, (-1, 1)))
        for method, clipping in _clippings(samples, divisor).items():
            scales, lost = {}, 0.0
            for name, sample in samples.items():
                scales[name] = half_scale(clipping * float((sample.peak / divisor).max()) / LEVELS)
                levels = whole_numbers(sample.rows / divisor, scales[name], levels=LEVELS)
                error = np.square((levels * scales[name]) @ rounded - exact[name]).sum(axis=1)
                lost += float((error / energies[name]).mean()) / len(samples)
            kept = np.asarray(divisor) if strength else None
            choices.append(ScaleChoice(weights, values, kept, scales, strength, method, clipping, lost))
    return min(choices, key=lambda choice: choice.lost)


def _clippings(samples: Mapping[str, Samples], divisor: Any) -> dict[RangeMethod, float]:
    """Return each method's share over all the tensors together, each relative to its own largest magnitude."""
    counts = np.zeros(BINS, np.int64)
    for sample in samples.values():
        counts += magnitude_counts(sample.rows / divisor, max(float((sample.peak / divisor).max()), 1e-9))
    return kept_shares(counts, LEVELS)


def smooth(
    model: ir.Model, sites: Sequence[Site], choices: Sequence[ScaleChoice]
) -> tuple[list[Site], dict[str, float]]:
    """Divide the channels of linear inputs, in place, and multiply the weights' rows by the same.

    Returns the sites after it and the scale of each one's tensor. The division is a node of its own: the layer norm
    before it also feeds the residual sum, and TensorRT runs it in the kernel that quantises anyway. After attention it
    goes into the layer that makes V.
    """
    chosen = {choice.weights: choice for choice in choices}
    factors = {choice.weights: _scale_weights(model, choice) for choice in choices}
    smoothed, scales = [], {}
    for site in sites:
        tensor, factor = site.tensor, factors[site.weights]
        if factor is not None:
            tensor = read_instead(site, [new_node("Mul", [tensor, factor], f"{tensor.name}_smooth")])
        scales[str(tensor.name)] = chosen[site.weights].scales[str(site.tensor.name)]
        smoothed.append(replace(site, tensor=tensor))
    return smoothed, scales


def _scale_weights(model: ir.Model, choice: ScaleChoice) -> ir.Value | None:
    """Put the divisor into the weights; return the factor by which the input is still to be multiplied, if any."""
    if choice.divisor is None:
        return None
    for weight in choice.weights:
        _multiply(weight, choice.divisor[:, None])
    inverse = (1 / choice.divisor).astype(np.float32)
    if not choice.values:
        return add_weight(model.graph, f"{choice.weights[0].name}_smoothing", inverse)
    _multiply(choice.values[0].weight, inverse[None, :])
    for value in choice.values:
        if value.bias_node is not None and value.bias is not None:
            # Equal biases are one weight in the graph: this sum gets its own.
            name = f"{value.bias.name}_of_{value.bias_node.name}"
            own = add_weight(model.graph, name, array_of(value.bias) * inverse)
            value.bias_node.replace_input_with(value.bias_node.inputs.index(value.bias), own)
    return None


def _multiply(weight: ir.Value, factor: Array) -> None:
    import onnx_ir as ir

    weight.const_value = ir.Tensor(array_of(weight) * factor, name=weight.name)


def read_instead(site: Site, nodes: Sequence[ir.Node]) -> ir.Value:
    """Put the nodes after the one that makes the site's tensor; its readers read what the last of them gives."""
    site.tensor.producer().append(nodes)
    for reader, side in site.readers:
        reader.replace_input_with(side, nodes[-1].outputs[0])
    return nodes[-1].outputs[0]


def activation_scales(
    model: ir.Model, sites: Sequence[Site], inputs: Sequence[Inputs], *, threads: int
) -> dict[str, float]:
    """Return the scales of activations that meet no weights: where clipping and rounding together lose least."""
    names = list(dict.fromkeys(str(site.tensor.name) for site in sites))
    if not names:
        return {}
    largest = largest_magnitudes(model, names, inputs, threads=threads)
    counts = magnitude_histograms(model, largest, inputs, threads=threads)
    shares = {name: RANGE_METHODS["mse"](counts[name], LEVELS) for name in names}
    return {name: half_scale(shares[name] * largest[name] / LEVELS) if largest[name] > 0 else 1.0 for name in names}


def weight_scale(matrix: Array) -> Array:
    """Return the scale of each output channel."""
    return np.asarray(half_scale(np.abs(matrix).max(axis=0) / LEVELS))


def half_scale(scale: Any) -> Any:
    """Return the scale as FP16 will hold it, so that weights are rounded with the very scale that undoes it."""
    rounded = np.maximum(scale, SMALLEST_SCALE).astype(np.float16).astype(np.float32)
    return float(rounded) if np.ndim(rounded) == 0 else rounded


def _rounded_weights(matrix: Array) -> Array:
    scale = weight_scale(matrix)
    return np.asarray(whole_numbers(matrix, scale, levels=LEVELS) * scale, np.float32)
