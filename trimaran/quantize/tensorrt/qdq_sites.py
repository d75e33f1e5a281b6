"""Finds where Q/DQ pairs go in an encoder's graph: linear layers, attention products, residual sums."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimaran.core.onnx_graph import is_weight
from trimaran.quantize.linear_layers import through_layout

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Site:
    """An activation that is quantised."""

    tensor: ir.Value
    # The nodes, and which of their inputs, that read the quantised form.
    readers: tuple[tuple[ir.Node, int], ...]
    # Of a linear layer: the matrices that it is multiplied with.
    weights: tuple[ir.Value, ...] = ()


@dataclass(frozen=True)
class ValueProjection:
    """The linear layer that makes an attention's V."""

    weight: ir.Value
    # The sum that adds its bias, and the bias; None without one.
    bias_node: ir.Node | None = None
    bias: ir.Value | None = None


def linear_sites(model: ir.Model, *, keep: Collection[str]) -> list[Site]:
    """Return the inputs of products with a constant matrix, but for the nodes whose output is in `keep`.

    A head's Gemm on one pooled row stays in float: it costs nothing.
    """
    readers: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type == "MatMul" and is_weight(node.inputs[1], rank=2) and node.outputs[0].name not in keep:
            readers.setdefault(node.inputs[0], []).append(node)
    return [
        Site(tensor, tuple((node, 0) for node in nodes), tuple(dict.fromkeys(node.inputs[1] for node in nodes)))
        for tensor, nodes in readers.items()
    ]


def attention_sites(model: ir.Model, *, keep: Collection[str]) -> list[Site]:
    """Return both inputs of the products around a softmax: queries with keys, and probabilities with V."""
    return [
        Site(value, ((node, side),))
        for node in model.graph
        if _is_attention_product(node) and node.outputs[0].name not in keep
        for side, value in enumerate(node.inputs)
    ]


def residual_sites(model: ir.Model, *, keep: Collection[str]) -> list[Site]:
    """Return the skipped side of each sum that a layer norm reads: the side that no linear layer has just made."""
    normalised = {node.inputs[0] for node in model.graph if node.op_type == "LayerNormalization"}
    sites = []
    for node in model.graph:
        if node.op_type != "Add" or node.outputs[0] not in normalised or any(map(is_weight, node.inputs)):
            continue
        skipped = [side for side, value in enumerate(node.inputs) if not _is_linear_result(value)]
        if len(skipped) == 1 and node.outputs[0].name not in keep:
            sites.append(Site(node.inputs[skipped[0]], ((node, skipped[0]),)))
    return sites


def is_attention_result(tensor: ir.Value) -> bool:
    """Whether the tensor is the product with V, its heads put side by side again."""
    return _is_attention_product(through_layout(tensor))


def value_projections(tensors: Sequence[ir.Value]) -> tuple[ValueProjection, ...]:
    """Return the layers that make V for these attention results; nothing if anything else reads their weight."""
    projections = tuple(filter(None, map(_value_projection, tensors)))
    weights = {projection.weight for projection in projections}
    uses = sum(len(weight.uses()) for weight in weights)
    return projections if len(projections) == len(tensors) == uses and len(weights) == 1 else ()


def _value_projection(tensor: ir.Value) -> ValueProjection | None:
    product = through_layout(tensor)
    if product is None or not _is_attention_product(product):
        return None
    node, bias_node, bias = through_layout(product.inputs[1]), None, None
    if node is not None and node.op_type == "Add":
        constants = [value for value in node.inputs if is_weight(value)]
        if len(constants) == 1:
            bias_node, bias = node, constants[0]
            node = through_layout(next(value for value in node.inputs if value is not bias))
    if node is None or node.op_type != "MatMul" or not is_weight(node.inputs[1]):
        return None
    return ValueProjection(node.inputs[1], bias_node, bias)


def _is_attention_product(node: ir.Node | None) -> bool:
    return node is not None and node.op_type == "MatMul" and not any(map(is_weight, node.inputs))


def _is_linear_result(value: ir.Value) -> bool:
    """Whether a product with a constant matrix made this, its bias included."""
    node = value.producer()
    if node is not None and node.op_type == "Add" and any(map(is_weight, node.inputs)):
        node = next((entry.producer() for entry in node.inputs if not is_weight(entry)), None)
    return node is not None and node.op_type in ("MatMul", "Gemm")
