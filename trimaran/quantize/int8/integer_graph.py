"""Writes chosen encodings into a graph: as Q/DQ pairs for OpenVINO or TensorRT, or as ONNX Runtime's integer operators.

A linear layer `y = x @ W + b` becomes integers in three steps, whose numbers `encodings` chooses. The activation is
multiplied by a factor and shifted by an offset for each channel, then rounded to 0 to 255. The weights are whole
numbers with a scale for each output channel. The bias takes up a correction for the offsets. In the style `qdq`:

    x -> Mul factors -> Add offsets -> QuantizeLinear -> DequantizeLinear -> MatMul -> Add corrected bias
                                          int8 weights -> DequantizeLinear ----^

The style `tensorrt` has zero points of zero, and adds before it multiplies: (x + offset / factor) · factor. In FP16 the
sum is then nearly exact, and what is multiplied is small.

In the style `onnxruntime`, MatMulIntegerToFloat (or QAttention) reads the result of QuantizeLinear. Where another layer
makes the activation, factors and offsets go into that layer instead, and copies of a channel are made there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trimaran.core.onnx_graph import add_weight, array_of, is_weight, new_node
from trimaran.quantize.int8.encodings import Encoding
from trimaran.quantize.linear_layers import LinearLayer, LinearProduct
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

Style = Literal["qdq", "tensorrt", "onnxruntime"]
ZERO, ZERO_SIGNED = "zero_u8", "zero_s8"


def name_nodes(model: ir.Model) -> ir.Model:
    """Give every node a name of its own, in place: layers refer to nodes by name."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{index}"
        taken.add(node.name)
    return model


def integer_graph(
    model: ir.Model,
    layers: Sequence[LinearLayer],
    encodings: Mapping[str, Encoding],
    *,
    kept: Collection[str],
    style: Style,
    steps: Mapping[str, float] | None = None,
) -> ir.Model:
    """Return a copy of the graph in which all layers but the `kept` ones run on whole numbers.

    `steps` are those of other activations, which get a Q/DQ pair of their own, symmetric around zero. The copy shares
    the weights that it does not change.
    """
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    copy = model.clone()
    chosen = {layer.name: encodings[layer.name] for layer in layers if layer.name not in kept}
    writer = _Writer(copy, style, _column_changes(copy, layers, chosen))
    for layer in layers:
        writer.write(layer, chosen.get(layer.name))
    writer.add_symmetric_pairs(steps or {})
    if style == "onnxruntime":
        writer.take_in_biases()
        copy.graph.opset_imports.setdefault("com.microsoft", 1)
    RemoveUnusedNodesPass()(copy)
    return copy


@dataclass(frozen=True)
class _ColumnChange:
    """What a later layer asks of a product's output channels: which ones, times what, plus what."""

    channels: Array
    factors: Array
    offsets: Array


def _column_changes(
    model: ir.Model, layers: Sequence[LinearLayer], encodings: Mapping[str, Encoding]
) -> dict[str, _ColumnChange]:
    """Return the changes by the name of the weight whose columns they change."""
    changes: dict[str, _ColumnChange] = {}
    for layer in layers:
        encoding = encodings.get(layer.name)
        if encoding is None:
            continue
        for columns in {value.product.weight: value for value in layer.values}.values():
            width = model.graph.initializers[columns.product.weight].const_value.shape[1]
            factors, offsets = np.ones(width, np.float32), np.zeros(width, np.float32)
            factors[columns.first : columns.last] = encoding.factors
            offsets[columns.first : columns.last] = encoding.offsets
            changes[columns.product.weight] = _ColumnChange(np.arange(width), factors, offsets)
        if layer.hidden and encoding.copies:
            width = len(encoding.channels)
            changes[layer.hidden[0].weight] = _ColumnChange(
                encoding.channels, np.ones(width, np.float32), np.zeros(width, np.float32)
            )
    return changes


class _Writer:
    """Edits one copy of the graph in place."""

    def __init__(self, model: ir.Model, style: Style, changes: Mapping[str, _ColumnChange]) -> None:
        self._graph, self._style, self._changes = model.graph, style, changes
        self._nodes = {node.name: node for node in model.graph}
        # The rounded form of each activation.
        self._rounded: dict[ir.Value, ir.Value] = {}

    def write(self, layer: LinearLayer, encoding: Encoding | None) -> None:
        """Write one layer: in whole numbers, or, without an encoding, in float with what later layers ask of it."""
        first = 0
        for name in layer.weights:
            columns = slice(first, first + self._graph.initializers[name].const_value.shape[1])
            first, change = columns.stop, self._changes.get(name)
            products = [product for product in layer.products if product.weight == name]
            if encoding is not None:
                weight = self._integer_weight(name, encoding.weights[:, columns], encoding.scales[columns], change)
                for product in products:
                    self._correct_bias(product, encoding.correction[columns], change)
                    self._make_integer(self._nodes[product.node], weight, layer, encoding)
            elif change is not None:
                matrix = array_of(self._graph.initializers[name])[:, change.channels] * change.factors
                changed = self._weight(f"{name}_changed", matrix.astype(np.float32))
                for product in products:
                    self._correct_bias(product, None, change)
                    self._nodes[product.node].replace_input_with(1, changed)

    def add_symmetric_pairs(self, steps: Mapping[str, float]) -> None:
        """Put a Q/DQ pair after each of these tensors; all nodes that read the tensor read the pair's result."""
        import onnx_ir as ir

        values = ir.convenience.create_value_mapping(self._graph)
        for name, step in steps.items():
            readers = list(values[name].uses())
            encoding = [self._weight(f"{name}_step", np.float32(step)), self._weight(ZERO_SIGNED, np.int8(0))]
            quantize = new_node("QuantizeLinear", [values[name], *encoding], f"{name}_s8")
            dequantize = new_node("DequantizeLinear", [quantize.outputs[0], *encoding], f"{name}_pair")
            values[name].producer().append([quantize, dequantize])
            for reader, side in readers:
                reader.replace_input_with(side, dequantize.outputs[0])

    def take_in_biases(self) -> None:
        """Let integer products add their biases themselves, where a node of its own did."""
        for node in [node for node in self._graph if node.op_type == "MatMulIntegerToFloat"]:
            readers = list(node.outputs[0].uses())
            reader, side = readers[0] if len(readers) == 1 else (None, 0)
            if reader is None or reader.op_type != "Add" or not is_weight(reader.inputs[1 - side], rank=1):
                continue
            node.resize_inputs(len(node.inputs) + 1)
            node.replace_input_with(len(node.inputs) - 1, reader.inputs[1 - side])
            product, total = node.outputs[0], reader.outputs[0]
            total.replace_all_uses_with(product, replace_graph_outputs=True)
            self._graph.remove(reader, safe=True)
            product.name, product.type, product.shape = total.name, total.type, total.shape

    def _integer_weight(
        self, name: str, levels: Array, scales: Array, change: _ColumnChange | None
    ) -> tuple[ir.Value, ...]:
        """Return what a product reads for its weight: one value in the style `qdq`, three in the other."""
        if change is not None:
            levels, scales = levels[:, change.channels], scales[change.channels] * change.factors
        integers = self._weight(f"{name}_s8", np.ascontiguousarray(levels, np.int8))
        scale = self._weight(f"{name}_scale", np.asarray(scales, np.float32))
        if self._style == "onnxruntime":
            return integers, scale, self._weight(f"{name}_zero", np.zeros(len(scales), np.int8))
        parts = [integers, scale]
        if self._style == "tensorrt":
            parts.append(self._weight(f"{ZERO_SIGNED}_{len(scales)}", np.zeros(len(scales), np.int8)))
        node = new_node("DequantizeLinear", parts, f"{name}_dq", axis=1)
        self._graph.insert_before(self._graph[0], node)
        return (node.outputs[0],)

    def _correct_bias(self, product: LinearProduct, correction: Array | None, change: _ColumnChange | None) -> None:
        """Add the correction to the product's bias, then change its columns. A product without a bias gets one."""
        node, side = (self._nodes[product.bias[0]], product.bias[1]) if product.bias else (None, 0)
        bias = array_of(node.inputs[side]) if node is not None else None
        value: Any = sum((part for part in (bias, correction) if part is not None), np.float32(0))
        if change is not None:
            value = np.broadcast_to(value, int(change.channels.max()) + 1)[change.channels] * change.factors
            value = value + change.offsets
        corrected = self._weight(f"{product.node}_bias", np.asarray(value, np.float32))
        if node is not None:
            node.replace_input_with(side, corrected)
            return
        result = self._nodes[product.node].outputs[0]
        total = new_node("Add", [None, corrected], str(result.name))
        total.outputs[0].type, total.outputs[0].shape = result.type, result.shape
        result.name = f"{result.name}_product"
        result.replace_all_uses_with(total.outputs[0], replace_graph_outputs=True)
        total.replace_input_with(0, result)
        self._nodes[product.node].append(total)

    def _make_integer(
        self, node: ir.Node, weight: tuple[ir.Value, ...], layer: LinearLayer, encoding: Encoding
    ) -> None:
        """Make the product read whole numbers on both sides."""
        tensor, step = node.inputs[0], self._weight(f"{layer.name}_step", np.float32(encoding.step))
        if tensor not in self._rounded:
            self._rounded[tensor] = self._round(tensor, step, layer, encoding)
        rounded = self._rounded[tensor]
        if self._style != "onnxruntime":
            node.replace_input_with(0, rounded)
            node.replace_input_with(1, weight[0])
            return
        integers, scale, zeros = weight
        zero = self._weight(ZERO, np.uint8(0))
        if node.op_type == "MatMul":
            _become(node, "MatMulIntegerToFloat", [rounded, integers, step, scale, zero, zeros])
            return
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        _become(node, "QAttention", [rounded, integers, node.inputs[2], step, scale, mask, zero, zeros])
        for name in set(node.attributes) - {"num_heads", "unidirectional", "mask_filter_value"}:
            del node.attributes[name]

    def _round(self, tensor: ir.Value, step: ir.Value, layer: LinearLayer, encoding: Encoding) -> ir.Value:
        """Round an activation, after its node; where V carries factors and offsets already, only round."""
        nodes, name, value = [], tensor.name, tensor
        signed = self._style == "tensorrt"
        if not layer.values and not (signed and encoding.is_plain):
            factors = self._weight(f"{layer.name}_factors", encoding.factors)
            offsets = encoding.offsets / encoding.factors if signed else encoding.offsets
            steps = [("Mul", factors, "scaled"), ("Add", self._weight(f"{layer.name}_offsets", offsets), "shifted")]
            for operator, numbers, suffix in reversed(steps) if signed else steps:
                nodes.append(new_node(operator, [value, numbers], f"{name}_{suffix}"))
                value = nodes[-1].outputs[0]
        zero = self._weight(ZERO_SIGNED, np.int8(0)) if signed else self._weight(ZERO, np.uint8(0))
        nodes.append(new_node("QuantizeLinear", [value, step, zero], f"{name}_{'s8' if signed else 'u8'}"))
        if self._style != "onnxruntime":
            nodes.append(new_node("DequantizeLinear", [nodes[-1].outputs[0], step, zero], f"{name}_dq"))
        tensor.producer().append(nodes)
        return nodes[-1].outputs[0]

    def _weight(self, name: str, array: Any) -> ir.Value:
        """Return the weight of this name; it is made once and shared."""
        if name not in self._graph.initializers:
            return add_weight(self._graph, name, array)
        return self._graph.initializers[name]


def _become(node: ir.Node, operator: str, inputs: Sequence[ir.Value | None]) -> None:
    """Make the node one of ONNX Runtime's own; its outputs stay."""
    node.op_type, node.domain = operator, "com.microsoft"
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)
