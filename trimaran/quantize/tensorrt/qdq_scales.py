"""Chooses, layer by layer, how far to smooth and where to clip, by what the layer's own result loses on real text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trimaran.quantize.activations import (
    Inputs,
    Samples,
    largest_magnitudes,
    magnitude_histograms,
    sampled_rows,
    smoothing_divisor,
)
from trimaran.quantize.ranges import BINS, RANGE_METHODS, Method, kept_shares, magnitude_counts
from trimaran.quantize.tensorrt.qdq_sites import Site, ValueProjection, after_attention, value_projection

Array = npt.NDArray[Any]
LEVELS = 127
# FP16 scales below its smallest normal number would lose bits; a channel this small rounds to zero anyway.
SMALLEST_SCALE = 2.0**-14
ROWS = 256
STRENGTHS = (0.0, 0.5, 0.65, 0.8, 0.95)


@dataclass(frozen=True)
class Choice:
    """For the layers with these weights: their inputs' divisor by channel (None: no smoothing) and scales.

    `values` are the layers that make V, where the input is the result of attention and the divisor goes into them.
    """

    weights: tuple[str, ...]
    values: tuple[ValueProjection, ...]
    divisor: Array | None
    scales: Mapping[str, float]
    strength: float
    method: Method
    clipping: float
    lost: float

    def facts(self) -> dict[str, Any]:
        return {
            "smoothing": self.strength,
            "range": self.method,
            "clipping": round(self.clipping, 4),
            "relative_error": round(self.lost, 6),
        }


def choose_scales(model: Any, sites: Sequence[Site], inputs: Sequence[Inputs], *, threads: int) -> list[Choice]:
    """One choice for each set of weights. Layers that share their weights (ALBERT) share the divisor."""
    import onnx

    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    samples = sampled_rows(model, [site.tensor for site in sites], inputs, rows=ROWS, threads=threads)
    groups: dict[tuple[str, ...], list[str]] = {}
    for site in sites:
        groups.setdefault(site.weights, []).append(site.tensor)
    choices = []
    for weights, names in groups.items():
        matrix = np.concatenate([onnx.numpy_helper.to_array(tensors[name]) for name in weights], axis=1)
        values, attended = _values(model, names)
        # The fused attention kernel quantises its own result, but only if no division stands between.
        strengths = (0.0,) if attended and not values else STRENGTHS
        choices.append(_choose(weights, values, matrix, {name: samples[name] for name in names}, strengths))
    return choices


def _values(model: Any, names: Sequence[str]) -> tuple[tuple[ValueProjection, ...], bool]:
    """The layers that make V for these attention results, if they are theirs alone; and whether they are such."""
    if not any(after_attention(model, name) for name in names):
        return (), False
    found = [value_projection(model, name) for name in names]
    values = tuple(value for value in found if value is not None)
    weights = {value.weight for value in values}
    readers = sum(entry in weights for node in model.graph.node for entry in node.input)
    return (values if len(values) == len(names) == readers and len(weights) == 1 else ()), True


def _choose(
    weights: tuple[str, ...],
    values: tuple[ValueProjection, ...],
    matrix: Array,
    samples: Mapping[str, Samples],
    strengths: Sequence[float],
) -> Choice:
    peak = np.max([found.peak for found in samples.values()], axis=0)
    wanted = {name: found.rows @ matrix for name, found in samples.items()}
    # Each token counts alike: a layer norm follows, and one outlier token would otherwise outweigh all others.
    powers = {name: np.maximum(np.square(result).sum(axis=1), 1e-12) for name, result in wanted.items()}
    best: Choice | None = None
    for strength in strengths:
        divisor = smoothing_divisor(peak, np.abs(matrix).max(axis=1), strength) if strength else np.float32(1.0)
        rounded = _rounded_weights(matrix * np.reshape(divisor, (-1, 1)))
        for method, clipping in _clippings(samples, divisor).items():
            scales, lost = {}, 0.0
            for name, found in samples.items():
                scales[name] = half_scale(clipping * float((found.peak / divisor).max()) / LEVELS)
                levels = np.clip(np.rint(found.rows / divisor / scales[name]), -LEVELS, LEVELS)
                error = np.square((levels * scales[name]) @ rounded - wanted[name]).sum(axis=1)
                lost += float((error / powers[name]).mean()) / len(samples)
            if best is None or lost < best.lost:
                divided = strength and not values
                named = {f"{name}_smooth" if divided else name: scale for name, scale in scales.items()}
                kept = np.asarray(divisor) if strength else None
                best = Choice(weights, values, kept, named, strength, method, clipping, lost)
    assert best is not None
    return best


def _clippings(samples: Mapping[str, Samples], divisor: Any) -> dict[Method, float]:
    """By method, what share of the largest magnitude the range keeps, the tensors that share weights taken together."""
    counts = np.zeros(BINS, np.int64)
    for found in samples.values():
        counts += magnitude_counts(found.rows / divisor, max(float((found.peak / divisor).max()), 1e-9))
    return kept_shares(counts, LEVELS)


def smooth(model: Any, sites: Sequence[Site], choices: Sequence[Choice]) -> None:
    """In place: divides the channels of linear inputs and multiplies the weights' rows by the same.

    The division stays a node of its own: the layer norm before it also feeds the residual sum, and TensorRT runs it
    in the kernel that quantises anyway. After attention it goes into the layer that makes V.
    """
    import onnx

    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}

    def scaled(name: str, factor: Array) -> Any:
        return onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensors[name]) * factor, name)

    factors: dict[tuple[str, ...], str] = {}
    for choice in choices:
        if choice.divisor is None:
            continue
        for name in choice.weights:
            tensors[name].CopyFrom(scaled(name, choice.divisor[:, None]))
        inverse = (1 / choice.divisor).astype(np.float32)
        if not choice.values:
            factors[choice.weights] = f"{choice.weights[0]}_smoothing"
            graph.initializer.append(onnx.numpy_helper.from_array(inverse, factors[choice.weights]))
            continue
        tensors[choice.values[0].weight].CopyFrom(scaled(choice.values[0].weight, inverse[None, :]))
        for value in choice.values:
            if value.bias is not None and value.sum_node is not None:
                # Equal biases are one tensor in the file: this sum gets its own.
                own = scaled(value.bias, inverse)
                own.name = f"{value.bias}_of_{value.sum_node}"
                graph.initializer.append(own)
                node = graph.node[value.sum_node]
                node.input[list(node.input).index(value.bias)] = own.name
    places = {place: factors[site.weights] for site in sites for place in site.places if site.weights in factors}
    insert_before_readers(graph, places, _division)


def activation_scales(model: Any, sites: Sequence[Site], inputs: Sequence[Inputs], *, threads: int) -> dict[str, float]:
    """Scales of activations that meet no weights: where clipping and rounding together lose least."""
    names = list(dict.fromkeys(site.tensor for site in sites))
    if not names:
        return {}
    largest = largest_magnitudes(model, names, inputs, threads=threads)
    counts = magnitude_histograms(model, largest, inputs, threads=threads)
    return {name: half_scale(_threshold(counts[name], largest[name]) / LEVELS) for name in names}


def _threshold(counts: Array, largest: float) -> float:
    return RANGE_METHODS["mse"](counts, LEVELS) * largest if largest > 0 else float(LEVELS)


def half_scale(scale: Any) -> Any:
    """As FP16 will hold it, so that weights are rounded with the very scale that undoes it."""
    rounded = np.maximum(scale, SMALLEST_SCALE).astype(np.float16).astype(np.float32)
    return float(rounded) if np.ndim(rounded) == 0 else rounded


def insert_before_readers(
    graph: Any, places: Mapping[tuple[int, int], str], make: Callable[[str, str], list[Any]]
) -> None:
    """Rewrites the nodes: before the first reader of a tensor come those that `make` gives for it, shared by all."""
    nodes: list[Any] = []
    made: dict[tuple[str, str], str] = {}
    for index, node in enumerate(list(graph.node)):
        for side, name in enumerate(node.input):
            argument = places.get((index, side))
            if argument is None:
                continue
            if (name, argument) not in made:
                fresh = make(name, argument)
                nodes.extend(fresh)
                made[name, argument] = fresh[-1].output[0]
            node.input[side] = made[name, argument]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _rounded_weights(matrix: Array) -> Array:
    scale = half_scale(np.abs(matrix).max(axis=0) / LEVELS)
    return np.asarray(np.clip(np.rint(matrix / scale), -LEVELS, LEVELS) * scale, np.float32)


def _division(name: str, factor: str) -> list[Any]:
    import onnx

    return [onnx.helper.make_node("Mul", [name, factor], [f"{name}_smooth"], f"{name}_smooth")]
