"""Finds the linear layers of an encoder's graph, plain or fused, and how each one's input may be rescaled exactly.

A linear layer is a product of an activation with a constant matrix, such as `MatMul(states, query.weight)`. Products
that read the same activation are one layer, because they share its rounding: Q, K and V of one attention are one layer
with three weights. A layer's input may be multiplied by a factor for each channel if its weights are divided by the
same; where the factor can go into the layer before it, this costs nothing when the model runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from trimaran.core.onnx_graph import is_weight

if TYPE_CHECKING:
    import onnx_ir as ir

# By operator: which of its inputs is a bias by output channel, where the linear layer before it has none of its own.
_BIAS_INPUT = {"BiasGelu": 1, "FastGelu": 1, "SkipLayerNormalization": 4}
_ELEMENTWISE = ("Add", "Div", "Erf", "Gelu", "Mul", "Pow", "Relu", "Sigmoid", "Sqrt", "Tanh", "BiasGelu", "FastGelu")


@dataclass(frozen=True)
class LinearProduct:
    """One product with a constant matrix, by the names that the graph has for it."""

    node: str
    weight: str
    # The node, and which of its inputs, that adds a bias to the result; None if nothing does.
    bias: tuple[str, int] | None


@dataclass(frozen=True)
class OutputColumns:
    """Output channels `first` to `last` of a product, into which a factor and an offset for each channel can go."""

    product: LinearProduct
    first: int
    last: int


@dataclass(frozen=True)
class LinearLayer:
    """Products that read one activation through the same weights."""

    name: str
    # The activations. Where layers share their weights (ALBERT) these are several, each read by as many products.
    tensors: tuple[str, ...]
    weights: tuple[str, ...]
    products: tuple[LinearProduct, ...]
    # The products that make V, where the activation is an attention's result. That result is a weighted mean of V's
    # rows, so what is done to V's channels is done to it.
    values: tuple[OutputColumns, ...] = ()
    # The products that make the activation by elementwise functions alone. Their output channels may be repeated, and
    # so the activation's.
    hidden: tuple[LinearProduct, ...] = ()
    # Whether the activation is the result of a plain attention.
    attended: bool = False
    inputs: int = 0
    outputs: int = 0

    @property
    def multiplications(self) -> int:
        """For one token, in all passes through the layer."""
        return self.inputs * self.outputs * len(self.tensors)


@dataclass(frozen=True)
class AttentionScores:
    """The product of queries and keys of one attention: the activations of both, as the linear layers made them."""

    name: str
    tensors: tuple[str, str]


def linear_layers(model: ir.Model) -> list[LinearLayer]:
    """Return the layers in the graph's order. A head's Gemm on one pooled row stays in float: it costs nothing."""
    readers: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type in ("MatMul", "Attention") and is_weight(node.inputs[1], rank=2):
            readers.setdefault(node.inputs[0], []).append(node)
    groups: dict[tuple[ir.Value, ...], list[ir.Value]] = {}
    for tensor, nodes in readers.items():
        groups.setdefault(tuple(dict.fromkeys(node.inputs[1] for node in nodes)), []).append(tensor)
    users = Counter(weight for weights in groups for weight in weights)
    # A weight that two unlike layers share cannot have two scales: such layers are left out.
    return [
        _layer(weights, tensors, [node for tensor in tensors for node in readers[tensor]])
        for weights, tensors in groups.items()
        if all(users[weight] == 1 for weight in weights)
    ]


def attention_scores(model: ir.Model) -> list[AttentionScores]:
    """Return the products of queries and keys in a plain graph; in a fused attention they are not visible."""
    scores = []
    for node in model.graph:
        if node.op_type != "MatMul" or any(map(is_weight, node.inputs)) or not _leads_to_softmax(node.outputs[0]):
            continue
        query, key = map(_before_heads, node.inputs)
        if query is not None and key is not None:
            scores.append(AttentionScores(f"{_name([str(node.name)])}/scores", (str(query.name), str(key.name))))
    return scores


def is_attention_product(node: ir.Node | None) -> bool:
    """Whether this multiplies two activations, as queries with keys, or probabilities with V."""
    return node is not None and node.op_type == "MatMul" and not any(map(is_weight, node.inputs))


def is_attention_result(value: ir.Value) -> bool:
    """Whether the value is the product with V, its heads put side by side again."""
    return is_attention_product(through_layout(value))


def through_layout(value: ir.Value | None, *, sole_reader: bool = False) -> ir.Node | None:
    """Return the node that computed the value, before any Reshape and Transpose.

    With `sole_reader` only if nothing else reads what those take.
    """
    node = None if value is None else value.producer()
    while node is not None and node.op_type in ("Reshape", "Transpose"):
        value = node.inputs[0]
        if sole_reader and len(_readers(value)) != 1:
            return None
        node = value.producer()
    return node


def _layer(weights: tuple[ir.Value, ...], tensors: list[ir.Value], nodes: list[ir.Node]) -> LinearLayer:
    return LinearLayer(
        name=_name([str(node.name) for node in nodes[: len(weights)]]),
        tensors=tuple(str(tensor.name) for tensor in tensors),
        weights=tuple(str(weight.name) for weight in weights),
        products=tuple(map(_product, nodes)),
        values=_values(tensors),
        hidden=_hidden(tensors, nodes),
        attended=any(map(is_attention_result, tensors)),
        inputs=_shape(weights[0])[0],
        outputs=sum(_shape(weight)[1] for weight in weights),
    )


def _product(node: ir.Node) -> LinearProduct:
    if node.op_type == "Attention":
        return LinearProduct(str(node.name), str(node.inputs[1].name), (str(node.name), 2))
    readers = _readers(node.outputs[0])
    reader = readers[0] if len(readers) == 1 else None
    side = None if reader is None else _bias_input(reader, node.outputs[0])
    bias = None if reader is None or side is None else (str(reader.name), side)
    return LinearProduct(str(node.name), str(node.inputs[1].name), bias)


def _bias_input(node: ir.Node, result: ir.Value) -> int | None:
    """Return which input of the node is a bias for `result`, which it also reads."""
    if node.op_type in _BIAS_INPUT:
        side = _BIAS_INPUT[node.op_type]
        fits = len(node.inputs) > side and is_weight(node.inputs[side], rank=1)
        # A fused residual sum takes a product on either side; its bias belongs to the first.
        return side if fits and result is node.inputs[0] else None
    if node.op_type != "Add":
        return None
    return next((side for side, value in enumerate(node.inputs) if is_weight(value, rank=1)), None)


def _values(tensors: Sequence[ir.Value]) -> tuple[OutputColumns, ...]:
    """Return the products that make V for these attention results, or nothing if one of them has no such product."""
    columns = [_value_columns(tensor) for tensor in tensors]
    if not _have_one_weight([entry[0] if entry else None for entry in columns]):
        return ()
    values = tuple(OutputColumns(_product(node), first, last) for node, first, last in filter(None, columns))
    return values if all(value.product.bias for value in values) else ()


def _value_columns(tensor: ir.Value) -> tuple[ir.Node, int, int] | None:
    node = through_layout(tensor, sole_reader=True)
    if node is None:
        return None
    if node.op_type == "Attention":
        width = _shape(node.inputs[1])[1] // 3
        return node, 2 * width, 3 * width
    if node.op_type != "MatMul" or is_weight(node.inputs[1]) or _operator(node.inputs[0]) != "Softmax":
        return None
    made = through_layout(node.inputs[1], sole_reader=True)
    if made is not None and made.op_type == "Add":
        made = next((value.producer() for value in made.inputs if not is_weight(value)), None)
    if made is None or made.op_type != "MatMul" or not is_weight(made.inputs[1], rank=2):
        return None
    return made, 0, _shape(made.inputs[1])[1]


def _hidden(tensors: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> tuple[LinearProduct, ...]:
    """Return the products that make these activations elementwise, or nothing if one of them has no such product."""
    makers = [_elementwise_maker(tensor, nodes) for tensor in tensors]
    return tuple(_product(node) for node in makers if node) if _have_one_weight(makers) else ()


def _elementwise_maker(tensor: ir.Value, readers: Sequence[ir.Node]) -> ir.Node | None:
    """Return the one product from which only elementwise functions, with single numbers, lead to the tensor."""
    if any(node not in readers for node in _readers(tensor)):
        return None
    region, waiting = {tensor}, [tensor]
    makers: set[ir.Node] = set()
    while waiting:
        node = waiting.pop().producer()
        if node is None or node.op_type not in (*_ELEMENTWISE, "MatMul"):
            return None
        if node.op_type == "MatMul":
            if not is_weight(node.inputs[1], rank=2):
                return None
            makers.add(node)
            continue
        for value in node.inputs:
            if value not in region and not _is_single_number(value) and not is_weight(value, rank=1):
                region.add(value)
                waiting.append(value)
    if len(makers) != 1:
        return None
    maker = makers.pop()
    # Nothing outside may read what lies between, and no other bias may be added there: both have the old width.
    inner = region - {tensor}
    closed = all(node is not None and set(node.outputs) & region for value in inner for node in _readers(value))
    biased = [str(value.producer().name) for value in region if _adds_bias(value.producer())]
    bias = _product(maker).bias
    return maker if closed and bias and biased == [bias[0]] else None


def _adds_bias(node: ir.Node) -> bool:
    return any(is_weight(value, rank=1) and not _is_single_number(value) for value in node.inputs)


def _have_one_weight(nodes: Sequence[ir.Node | None]) -> bool:
    """Whether these products are all there and read the same weight, which nothing else reads."""
    weights = {None if node is None else node.inputs[1] for node in nodes}
    weight = weights.pop()
    return not weights and weight is not None and len(weight.uses()) == len(nodes)


def _leads_to_softmax(value: ir.Value) -> bool:
    """Whether a softmax reads this, after nothing but scaling and masking."""
    while len(readers := _readers(value)) == 1 and readers[0] is not None:
        if readers[0].op_type == "Softmax":
            return True
        if readers[0].op_type not in ("Add", "Div", "Mul", "Where"):
            return False
        value = readers[0].outputs[0]
    return False


def _before_heads(value: ir.Value) -> ir.Value | None:
    """Return the activation before it was split into heads and scaled by one number, if only this product reads it."""
    while (node := value.producer()) is not None and len(_readers(value)) == 1:
        scaled = node.op_type in ("Mul", "Div") and _is_single_number(node.inputs[1])
        if not scaled and node.op_type not in ("Reshape", "Transpose"):
            return value
        value = node.inputs[0]
    return None


def _readers(value: ir.Value) -> list[ir.Node | None]:
    """Return the nodes that read the value; None stands for the caller, who reads the graph's outputs."""
    return [node for node, _ in value.uses()] + ([None] if value.is_graph_output() else [])


def _operator(value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else str(node.op_type)


def _shape(weight: ir.Value) -> tuple[int, ...]:
    return tuple(weight.const_value.shape.numpy())


def _is_single_number(value: ir.Value) -> bool:
    import onnx_ir as ir

    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and prod(tensor.shape.numpy()) == 1


def _name(nodes: list[str]) -> str:
    """Return what the products' paths have in common, such as `encoder/layer.0/attention/self`."""
    paths = [PurePosixPath(node.strip("/")).parts for node in nodes]
    folders = [path[:-1] or path for path in paths]
    shared = [parts[0] for parts in zip(*folders, strict=False) if len(set(parts)) == 1] or list(folders[0])
    return "/".join(shared[1:] if len(shared) > 1 and shared[0] == "model" else shared)
