"""Finds where symmetric Q/DQ pairs go in an encoder's graph: linear layers, attention products, residual sums."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Site:
    """One activation that is quantised, and the (node, input index) places that read it so; `weight` if linear."""

    tensor: str
    places: tuple[tuple[int, int], ...]
    weights: tuple[str, ...] = ()


def linear_sites(model: Any, *, keep: Collection[str]) -> list[Site]:
    """Inputs of products with a constant matrix. A head's Gemm on one pooled row stays in float: it costs nothing."""
    matrices = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    places: dict[str, list[tuple[int, int]]] = {}
    weights: dict[str, list[str]] = {}
    for index, node in enumerate(model.graph.node):
        if node.op_type == "MatMul" and node.input[1] in matrices and node.output[0] not in keep:
            places.setdefault(node.input[0], []).append((index, 0))
            weights.setdefault(node.input[0], []).append(node.input[1])
    return [Site(name, tuple(found), tuple(dict.fromkeys(weights[name]))) for name, found in places.items()]


def attention_sites(model: Any, *, keep: Collection[str]) -> list[Site]:
    """Both inputs of QKᵀ and of the product with V: products of two activations around a softmax."""
    weights = {tensor.name for tensor in model.graph.initializer}
    products = [
        (index, node)
        for index, node in enumerate(model.graph.node)
        if node.op_type == "MatMul" and not set(node.input) & weights and node.output[0] not in keep
    ]
    return [Site(name, ((index, side),)) for index, node in products for side, name in enumerate(node.input)]


def residual_sites(model: Any, *, keep: Collection[str]) -> list[Site]:
    """The skipped side of each sum that a layer norm reads: the one that no linear layer has just made."""
    made_by = {name: node for node in model.graph.node for name in node.output}
    weights = {tensor.name for tensor in model.graph.initializer}
    normed = {node.input[0] for node in model.graph.node if node.op_type == "LayerNormalization"}
    sites = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Add" or node.output[0] not in normed or set(node.input) & weights:
            continue
        if node.output[0] in keep:
            continue
        skipped = [
            side for side, name in enumerate(node.input) if not _after_linear(made_by.get(name), made_by, weights)
        ]
        if len(skipped) == 1:
            sites.append(Site(node.input[skipped[0]], ((index, skipped[0]),)))
    return sites


@dataclass(frozen=True)
class ValueProjection:
    """The linear layer that makes V: its weights, and the sum that adds its bias (None without one)."""

    weight: str
    bias: str | None = None
    sum_node: int | None = None


def after_attention(model: Any, name: str) -> bool:
    """Whether the tensor is the result of the product with V, its heads put side by side again."""
    return _attention_product(_Makers(model), name) is not None


def value_projection(model: Any, name: str) -> ValueProjection | None:
    """The layer that made the V of the attention whose result this is, if nothing but it can tell."""
    makers = _Makers(model)
    product = _attention_product(makers, name)
    index, node = makers.through(product.input[1]) if product is not None else (0, None)
    bias, place = None, None
    if node is not None and node.op_type == "Add" and len(constant := set(node.input) & makers.weights) == 1:
        bias, place = constant.pop(), index
        index, node = makers.through(next(entry for entry in node.input if entry != bias))
    if node is None or node.op_type != "MatMul" or node.input[1] not in makers.weights:
        return None
    return ValueProjection(node.input[1], bias, place)


class _Makers:
    """Who makes each tensor of a graph."""

    def __init__(self, model: Any) -> None:
        self.weights = {tensor.name for tensor in model.graph.initializer}
        self._nodes = {name: (index, node) for index, node in enumerate(model.graph.node) for name in node.output}

    def through(self, name: str) -> tuple[int, Any]:
        """The node that computed the tensor, reshapes and transposes apart."""
        index, node = self._nodes.get(name, (0, None))
        while node is not None and node.op_type in ("Reshape", "Transpose"):
            index, node = self._nodes.get(node.input[0], (0, None))
        return index, node


def _attention_product(makers: _Makers, name: str) -> Any:
    _, node = makers.through(name)
    found = node is not None and node.op_type == "MatMul" and not set(node.input) & makers.weights
    return node if found else None


def _after_linear(node: Any, made_by: dict[str, Any], weights: Collection[str]) -> bool:
    """A product with a constant matrix, its bias included."""
    if node is not None and node.op_type == "Add" and set(node.input) & set(weights):
        node = next((made_by.get(name) for name in node.input if name not in weights), None)
    return node is not None and node.op_type in ("MatMul", "Gemm")
