"""Finds the linear layers of an encoder's graph, plain or fused, and how each one's input may be rescaled exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Which input of an operator is a bias by output channel, where the linear layer before it has none of its own.
_BIAS_INPUT = {"BiasGelu": 1, "FastGelu": 1, "SkipLayerNormalization": 4}
_ELEMENTWISE = ("Add", "Div", "Erf", "Gelu", "Mul", "Pow", "Relu", "Sigmoid", "Sqrt", "Tanh", "BiasGelu", "FastGelu")


@dataclass(frozen=True)
class Product:
    """One product with a constant matrix. `bias` is the (node, input) that adds to its result, if there is one."""

    node: str
    weight: str
    bias: tuple[str, int] | None


@dataclass(frozen=True)
class Columns:
    """Some output channels of a product before this layer, into which a factor and an offset by channel can go."""

    product: Product
    first: int
    last: int


@dataclass(frozen=True)
class Layer:
    """Products that read one activation through the same weights.

    Where layers share their weights (ALBERT) `tensors` has several activations, each read by as many products.
    `values` make V, where the activation is attention's result: a weighted mean of V's rows, so that what is done to
    V's channels is done to it. `hidden` make the activation by elementwise functions alone: their output channels may
    be repeated, and so the activation's. Both are empty where the input must be rescaled by nodes of its own.
    """

    name: str
    tensors: tuple[str, ...]
    weights: tuple[str, ...]
    products: tuple[Product, ...]
    values: tuple[Columns, ...] = ()
    hidden: tuple[Product, ...] = ()
    inputs: int = 0
    outputs: int = 0

    @property
    def multiplications(self) -> int:
        """For one token, however often the layer is passed."""
        return self.inputs * self.outputs * len(self.tensors)


def linear_layers(model: Any) -> list[Layer]:
    """In the graph's order. A head's Gemm on one pooled row stays in float: it costs nothing."""
    graph = _Graph(model)
    read: dict[str, list[Product]] = {}
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Attention") and len(graph.dims.get(node.input[1], ())) == 2:
            read.setdefault(node.input[0], []).append(graph.product(node))
    groups: dict[tuple[str, ...], list[str]] = {}
    for tensor, reading in read.items():
        groups.setdefault(tuple(dict.fromkeys(found.weight for found in reading)), []).append(tensor)
    users = Counter(weight for weights in groups for weight in weights)
    layers = []
    for weights, tensors in groups.items():
        # A weight that two unlike layers share cannot have two scales.
        if any(users[weight] > 1 for weight in weights):
            continue
        products = tuple(found for tensor in tensors for found in read[tensor])
        layers.append(
            Layer(
                name=_name([found.node for found in products[: len(weights)]]),
                tensors=tuple(tensors),
                weights=weights,
                products=products,
                values=graph.values(tensors),
                hidden=graph.hidden(tensors, products),
                inputs=graph.dims[weights[0]][0],
                outputs=sum(graph.dims[weight][1] for weight in weights),
            )
        )
    return layers


@dataclass(frozen=True)
class Scores:
    """The product QKᵀ of one attention: its two sides, as the linear layers made them."""

    name: str
    tensors: tuple[str, str]


def attention_scores(model: Any) -> list[Scores]:
    """Of a plain graph; a fused attention has no such product in sight."""
    graph = _Graph(model)
    found = []
    for node in model.graph.node:
        if node.op_type != "MatMul" or set(node.input) & set(graph.dims) or not graph.leads_to_softmax(node.output[0]):
            continue
        sides = [graph.before_heads(name) for name in node.input]
        if sides[0] is not None and sides[1] is not None:
            found.append(Scores(f"{_name([node.name])}/scores", (sides[0], sides[1])))
    return found


class _Graph:
    def __init__(self, model: Any) -> None:
        self.dims = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.readers: dict[str, list[Any]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self.readers[name].append(node)
        for output in model.graph.output:
            self.readers[output.name].append(None)

    def product(self, node: Any) -> Product:
        if node.op_type == "Attention":
            return Product(node.name, node.input[1], (node.name, 2))
        readers = self.readers[node.output[0]]
        bias = self._bias_input(readers[0], node.output[0]) if len(readers) == 1 and readers[0] is not None else None
        return Product(node.name, node.input[1], (readers[0].name, bias) if bias is not None else None)

    def values(self, tensors: list[str]) -> tuple[Columns, ...]:
        found = [self._value(tensor) for tensor in tensors]
        columns = [value for value in found if value is not None]
        weights = {value.product.weight for value in columns}
        whole = len(columns) == len(tensors) and len(weights) == 1 and all(value.product.bias for value in columns)
        return tuple(columns) if whole and len(self.readers[weights.pop()]) == len(tensors) else ()

    def hidden(self, tensors: list[str], products: tuple[Product, ...]) -> tuple[Product, ...]:
        names = {found.node for found in products}
        found = [self._hidden(tensor, names) for tensor in tensors]
        whole = [product for product in found if product is not None]
        weights = {product.weight for product in whole}
        if len(whole) != len(tensors) or len(weights) != 1 or len(self.readers[weights.pop()]) != len(tensors):
            return ()
        return tuple(whole)

    def leads_to_softmax(self, name: str) -> bool:
        """Scaling and masking apart."""
        while len(self.readers[name]) == 1 and (node := self.readers[name][0]) is not None:
            if node.op_type == "Softmax":
                return True
            if node.op_type not in ("Add", "Div", "Mul", "Where"):
                return False
            name = node.output[0]
        return False

    def before_heads(self, name: str) -> str | None:
        """The activation before it was parted into heads and scaled by one number, if it was made for this alone."""
        while (node := self.makers.get(name)) is not None and len(self.readers[name]) == 1:
            scaled = node.op_type in ("Mul", "Div") and self._single(node.input[1])
            if not scaled and node.op_type not in ("Reshape", "Transpose"):
                return name
            name = node.input[0]
        return None

    def _bias_input(self, node: Any, other: str) -> int | None:
        if node.op_type in _BIAS_INPUT:
            place = _BIAS_INPUT[node.op_type]
            fits = len(node.input) > place and len(self.dims.get(node.input[place], ())) == 1
            # The sum of a residual takes either side; a bias belongs to the one that is no product's.
            return place if fits and other == node.input[0] else None
        if node.op_type != "Add":
            return None
        return next((side for side, name in enumerate(node.input) if len(self.dims.get(name, ())) == 1), None)

    def _value(self, tensor: str) -> Columns | None:
        node = self._through(tensor)
        if node is None:
            return None
        if node.op_type == "Attention":
            width = self.dims[node.input[1]][1] // 3
            return Columns(self.product(node), 2 * width, 3 * width)
        weighted = node.op_type == "MatMul" and node.input[1] not in self.dims
        if not weighted or getattr(self.makers.get(node.input[0]), "op_type", "") != "Softmax":
            return None
        made = self._through(node.input[1])
        if made is not None and made.op_type == "Add":
            made = next((self.makers.get(name) for name in made.input if name not in self.dims), None)
        if made is None or made.op_type != "MatMul" or len(self.dims.get(made.input[1], ())) != 2:
            return None
        return Columns(self.product(made), 0, self.dims[made.input[1]][1])

    def _through(self, name: str) -> Any:
        """The node that computed the tensor, reshapes and transposes apart, if nothing else reads it on the way."""
        node = self.makers.get(name)
        while node is not None and node.op_type in ("Reshape", "Transpose"):
            name = node.input[0]
            if len(self.readers[name]) != 1:
                return None
            node = self.makers.get(name)
        return node

    def _hidden(self, tensor: str, readers: set[str]) -> Product | None:
        """The one product from which elementwise functions with single numbers alone lead to the tensor."""
        if any(node is None or node.name not in readers for node in self.readers[tensor]):
            return None
        region, found = {tensor}, set()
        waiting = [tensor]
        while waiting:
            node = self.makers.get(waiting.pop())
            if node is None or (node.op_type not in _ELEMENTWISE and node.op_type != "MatMul"):
                return None
            if node.op_type == "MatMul":
                if len(self.dims.get(node.input[1], ())) != 2:
                    return None
                found.add(node.name)
                continue
            for name in node.input:
                if name in region or self._single(name) or self._is_bias(node, name):
                    continue
                region.add(name)
                waiting.append(name)
        if len(found) != 1:
            return None
        product = self.product(next(node for node in self.makers.values() if node.name in found))
        inside = {name for name in region if name != tensor}
        closed = all(node is not None and set(node.output) & region for name in inside for node in self.readers[name])
        biases = [node for name in region for node in self._biased(name)]
        return product if closed and product.bias and biases == [product.bias[0]] else None

    def _single(self, name: str) -> bool:
        if name in self.dims:
            return int(np.prod(self.dims[name])) == 1
        node = self.makers.get(name)
        if node is None or node.op_type != "Constant":
            return False
        value = node.attribute[0]
        return not value.t.dims or int(np.prod(value.t.dims)) == 1

    def _is_bias(self, node: Any, name: str) -> bool:
        return len(self.dims.get(name, ())) == 1

    def _biased(self, name: str) -> Iterator[str]:
        node = self.makers.get(name)
        if node is not None and any(self._is_bias(node, entry) and not self._single(entry) for entry in node.input):
            yield node.name


def _name(nodes: list[str]) -> str:
    """What the products have in common in their paths, such as `encoder/layer.0/attention/self`."""
    paths = [PurePosixPath(node.strip("/")).parts for node in nodes]
    folders = [path[:-1] or path for path in paths]
    shared = [parts[0] for parts in zip(*folders, strict=False) if len(set(parts)) == 1] or list(folders[0])
    return "/".join(shared[1:] if len(shared) > 1 and shared[0] == "model" else shared)
