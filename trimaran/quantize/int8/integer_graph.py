"""Writes chosen encodings into a graph: as Q/DQ pairs that any engine reads, or as ONNX Runtime's integer operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from trimaran.quantize.int8.encodings import Integers
from trimaran.quantize.linear_layers import Layer, Product

Array = npt.NDArray[Any]
Style = Literal["qdq", "onnxruntime"]
ZERO, ZERO_SIGNED = "zero_u8", "zero_s8"


def name_nodes(model: Any) -> Any:
    """In place: every node gets a name of its own, by which layers refer to it."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{index}"
        taken.add(node.name)
    return model


def integer_graph(
    model: Any,
    layers: Sequence[Layer],
    encodings: Mapping[str, Integers],
    *,
    kept: Collection[str],
    style: Style,
    steps: Mapping[str, float] | None = None,
) -> Any:
    """A copy of the graph in which all layers but the `kept` ones run on whole numbers.

    `steps` are those of other activations that get a Q/DQ pair of their own, symmetric around zero.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    integer = [layer for layer in layers if layer.name not in kept]
    writer = _Writer(result, style)
    writer.columns = _columns(result, integer, encodings)
    for layer in layers:
        writer.weights_of(layer, encodings[layer.name] if layer.name not in kept else None)
    writer.rewrite_nodes(integer, encodings)
    writer.pair_up(steps or {})
    writer.finish()
    return result


@dataclass
class _ColumnChange:
    """What the layers after a product ask of its output channels: which ones, times what, plus what."""

    channels: Array
    factors: Array
    offsets: Array


def _columns(model: Any, integer: Sequence[Layer], encodings: Mapping[str, Integers]) -> dict[str, _ColumnChange]:
    widths = {tensor.name: tensor.dims[1] for tensor in model.graph.initializer if len(tensor.dims) == 2}
    changes: dict[str, _ColumnChange] = {}
    for layer in integer:
        found = encodings[layer.name]
        for weight in {value.product.weight: value for value in layer.values}.values():
            width = widths[weight.product.weight]
            change = _ColumnChange(np.arange(width), np.ones(width, np.float32), np.zeros(width, np.float32))
            change.factors[weight.first : weight.last] = found.factors
            change.offsets[weight.first : weight.last] = found.offsets
            changes[weight.product.weight] = change
        if layer.hidden and found.copies:
            size = len(found.channels)
            changes[layer.hidden[0].weight] = _ColumnChange(
                found.channels, np.ones(size, np.float32), np.zeros(size, np.float32)
            )
    return changes


class _Writer:
    def __init__(self, model: Any, style: Style) -> None:
        import onnx

        self._onnx, self._model, self._style = onnx, model, style
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._nodes = {node.name: node for node in model.graph.node}
        self._added: dict[str, Any] = {}
        self._front: list[Any] = []
        self._after: dict[str, list[Any]] = {}
        self.columns: dict[str, _ColumnChange] = {}

    def weights_of(self, layer: Layer, encoding: Integers | None) -> None:
        """Puts the layer's weights and biases in place: whole numbers, or floats where only channels changed."""
        ends = np.cumsum([self._tensors[name].dims[1] for name in layer.weights])
        places = {
            name: slice(end - self._tensors[name].dims[1], end) for name, end in zip(layer.weights, ends, strict=True)
        }
        for name, place in places.items():
            change = self.columns.get(name)
            if encoding is not None:
                self._integer_weight(name, encoding.weights[:, place], encoding.scales[place], change)
            elif change is not None:
                self._put(
                    f"{name}_changed", (self._array(name)[:, change.channels] * change.factors).astype(np.float32)
                )
        for product in layer.products:
            change = self.columns.get(product.weight)
            if encoding is None and change is None:
                continue
            correction = encoding.correction[places[product.weight]] if encoding is not None else None
            self._bias(product, correction, change)
            if encoding is None:
                self._nodes[product.node].input[1] = f"{product.weight}_changed"

    def rewrite_nodes(self, integer: Sequence[Layer], encodings: Mapping[str, Integers]) -> None:
        """Before the first reader of an activation comes what makes it integer; products read that and their weight."""
        places = {product.node: (layer, product) for layer in integer for product in layer.products}
        made: dict[str, str] = {}
        nodes: list[Any] = list(self._front)
        for node in list(self._model.graph.node):
            if node.name in places:
                layer, product = places[node.name]
                tensor = node.input[0]
                if tensor not in made:
                    fresh, made[tensor] = self._encoded(tensor, layer, encodings[layer.name])
                    nodes.extend(fresh)
                nodes.append(self._product(node, product, made[tensor], layer.name))
            else:
                nodes.append(node)
            nodes.extend(self._after.get(node.name, ()))
        del self._model.graph.node[:]
        self._model.graph.node.extend(nodes)

    def pair_up(self, steps: Mapping[str, float]) -> None:
        """After each of these tensors comes a pair, and all who read the tensor read what it gives."""
        nodes: list[Any] = []
        for node in list(self._model.graph.node):
            for side, name in enumerate(node.input):
                node.input[side] = f"{name}_pair" if name in steps else name
            nodes.append(node)
            for name in (entry for entry in node.output if entry in steps):
                scale = [f"{name}_step", ZERO_SIGNED]
                self._put(scale[0], np.asarray(steps[name], np.float32))
                self._put(ZERO_SIGNED, np.asarray(0, np.int8))
                nodes.append(self._node("QuantizeLinear", [name, *scale], f"{name}_s8"))
                nodes.append(self._node("DequantizeLinear", [f"{name}_s8", *scale], f"{name}_pair"))
        del self._model.graph.node[:]
        self._model.graph.node.extend(nodes)

    def finish(self) -> None:
        """Takes away the weights that nobody reads any more, and shapes that may have changed."""
        graph = self._model.graph
        read = {name for node in graph.node for name in node.input}
        # One by one: putting a list in their place would copy every weight that stays.
        for place in reversed(range(len(graph.initializer))):
            name = graph.initializer[place].name
            if name not in read or name in self._added:
                del graph.initializer[place]
        graph.initializer.extend(tensor for name, tensor in self._added.items() if name in read)
        del graph.value_info[:]
        domains = {entry.domain for entry in self._model.opset_import}
        if self._style == "onnxruntime" and "com.microsoft" not in domains:
            self._model.opset_import.append(self._onnx.helper.make_opsetid("com.microsoft", 1))

    def _integer_weight(self, name: str, levels: Array, scales: Array, change: _ColumnChange | None) -> None:
        if change is not None:
            levels, scales = levels[:, change.channels], scales[change.channels] * change.factors
        self._put(f"{name}_s8", np.ascontiguousarray(levels, np.int8))
        self._put(f"{name}_scale", np.asarray(scales, np.float32))
        if self._style == "qdq":
            self._front.append(self._node("DequantizeLinear", [f"{name}_s8", f"{name}_scale"], f"{name}_dq", axis=1))
        else:
            self._put(f"{name}_zero", np.zeros(len(scales), np.int8))

    def _bias(self, product: Product, correction: Array | None, change: _ColumnChange | None) -> None:
        bias = self._array(self._bias_name(product)) if product.bias else None
        value = sum((part for part in (bias, correction) if part is not None), np.float32(0))
        if change is not None:
            value = np.broadcast_to(value, int(change.channels.max()) + 1)[change.channels] * change.factors
            value = value + change.offsets
        name = f"{product.node}_bias"
        self._put(name, np.asarray(value, np.float32))
        if product.bias:
            node, place = product.bias
            self._nodes[node].input[place] = name
            return
        node = self._nodes[product.node]
        inner, outer = f"{node.output[0]}_product", node.output[0]
        node.output[0] = inner
        self._after[product.node] = [self._node("Add", [inner, name], outer)]

    def _bias_name(self, product: Product) -> str:
        assert product.bias is not None
        return str(self._nodes[product.bias[0]].input[product.bias[1]])

    def _encoded(self, tensor: str, layer: Layer, found: Integers) -> tuple[list[Any], str]:
        nodes, name = [], tensor
        if not layer.values:
            self._put(f"{layer.name}_factors", found.factors)
            self._put(f"{layer.name}_offsets", found.offsets)
            nodes += [
                self._node("Mul", [tensor, f"{layer.name}_factors"], f"{tensor}_scaled"),
                self._node("Add", [f"{tensor}_scaled", f"{layer.name}_offsets"], f"{tensor}_shifted"),
            ]
            name = f"{tensor}_shifted"
        self._put(f"{layer.name}_step", np.asarray(found.step, np.float32))
        self._put(ZERO, np.asarray(0, np.uint8))
        nodes.append(self._node("QuantizeLinear", [name, f"{layer.name}_step", ZERO], f"{tensor}_u8"))
        if self._style == "onnxruntime":
            return nodes, f"{tensor}_u8"
        nodes.append(self._node("DequantizeLinear", [f"{tensor}_u8", f"{layer.name}_step", ZERO], f"{tensor}_dq"))
        return nodes, f"{tensor}_dq"

    def _product(self, node: Any, product: Product, tensor: str, layer: str) -> Any:
        if self._style == "qdq":
            node.input[0], node.input[1] = tensor, f"{product.weight}_dq"
            return node
        step = f"{layer}_step"
        weight = [f"{product.weight}_{part}" for part in ("s8", "scale", "zero")]
        helper = self._onnx.helper
        if node.op_type == "MatMul":
            inputs = [tensor, weight[0], step, weight[1], ZERO, weight[2]]
            return helper.make_node(
                "MatMulIntegerToFloat", inputs, list(node.output), node.name, domain="com.microsoft"
            )
        mask = node.input[3] if len(node.input) > 3 else ""
        inputs = [tensor, weight[0], node.input[2], step, weight[1], mask, ZERO, weight[2]]
        attention = helper.make_node("QAttention", inputs, list(node.output), node.name, domain="com.microsoft")
        attention.attribute.extend(
            entry for entry in node.attribute if entry.name in ("num_heads", "unidirectional", "mask_filter_value")
        )
        return attention

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> Any:
        return self._onnx.helper.make_node(kind, inputs, [output], output, **attributes)

    def _array(self, name: str) -> Array:
        return np.asarray(self._onnx.numpy_helper.to_array(self._tensors[name]))

    def _put(self, name: str, array: Array) -> None:
        self._added.setdefault(name, self._onnx.numpy_helper.from_array(array, name))
