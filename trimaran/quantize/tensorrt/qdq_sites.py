"""Finds what else than linear layers can be quantised in an encoder's graph: attention products and residual sums."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimaran.core.onnx_graph import is_weight
from trimaran.quantize.linear_layers import is_attention_product

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Site:
    """An activation that is quantised."""

    tensor: ir.Value
    # The nodes, and which of their inputs, that read the quantised form.
    readers: tuple[tuple[ir.Node, int], ...]


@dataclass(frozen=True)
class QuantisedPart:
    """Activations that are quantised together, or not at all. Its name is that of its last node."""

    name: str
    sites: tuple[Site, ...]


def attention_parts(model: ir.Model, *, keep: Collection[str]) -> list[QuantisedPart]:
    """Return, for each attention, both inputs of its products: queries with keys, and probabilities with V.

    Attentions with a product whose output is in `keep` are left out.
    """
    parts = []
    for node in model.graph:
        if not is_attention_product(node):
            continue
        scores = [product for value in node.inputs for product in _products_before_softmax(value)]
        products = [*scores, node] if scores else []
        if products and not any(product.outputs[0].name in keep for product in products):
            sites = [
                Site(value, ((product, side),)) for product in products for side, value in enumerate(product.inputs)
            ]
            parts.append(QuantisedPart(str(node.name), tuple(sites)))
    return parts


def residual_parts(model: ir.Model, *, keep: Collection[str]) -> list[QuantisedPart]:
    """Return the skipped side of each sum that a layer norm reads: the side that no linear layer has just made."""
    normalised = {node.inputs[0] for node in model.graph if node.op_type == "LayerNormalization"}
    parts = []
    for node in model.graph:
        if node.op_type != "Add" or node.outputs[0] not in normalised or any(map(is_weight, node.inputs)):
            continue
        skipped = [side for side, value in enumerate(node.inputs) if not _is_linear_result(value)]
        if len(skipped) == 1 and node.outputs[0].name not in keep:
            site = Site(node.inputs[skipped[0]], ((node, skipped[0]),))
            parts.append(QuantisedPart(str(node.name), (site,)))
    return parts


def _products_before_softmax(value: ir.Value) -> list[ir.Node]:
    """Return the products of activations that a softmax reads on its way to this value; none without a softmax."""
    waiting, seen, softmax = [value], {value}, False
    products: list[ir.Node] = []
    while waiting:
        node = waiting.pop().producer()
        if node is None:
            continue
        if node.op_type == "MatMul":
            products += [node] if is_attention_product(node) and node not in products else []
            continue
        softmax = softmax or node.op_type == "Softmax"
        fresh = [entry for entry in node.inputs if entry is not None and entry not in seen]
        seen.update(fresh)
        waiting += fresh
    return products if softmax else []


def _is_linear_result(value: ir.Value) -> bool:
    """Whether a product with a constant matrix made this, its bias included."""
    node = value.producer()
    if node is not None and node.op_type == "Add" and any(map(is_weight, node.inputs)):
        node = next((entry.producer() for entry in node.inputs if not is_weight(entry)), None)
    return node is not None and node.op_type in ("MatMul", "Gemm")
