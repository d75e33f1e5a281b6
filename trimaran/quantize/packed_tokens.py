"""Rewrites a fused ONNX graph so that what works token by token skips padding.

A linear layer computes each token by itself, but gets [texts, tokens, features] with padding. Packed, it gets the real
tokens of all texts in one row, [tokens, features]; only attention sees texts apart. Example: texts of 3 and 5 tokens
are 2 x 5 places with padding; packed they are 8 tokens.

The graph finds the tokens in its own mask, so the file runs in any ONNX Runtime. ONNX Runtime prepares nothing for a
shape, so no second copy is needed, as OpenVINO's graphs have one (`int8/openvino_packed.py`, decision 12).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trimaran.core.onnx_graph import add_weight, is_weight, new_node
from trimaran.core.onnx_write import write_model
from trimaran.quantize.int8.openvino_mask import MASK
from trimaran.quantize.padded_calls import PaddedCall, agree_where_shown, padded_calls
from trimaran.runtime.onnxruntime_engine import Engine
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

# Raise this when the same graph is packed differently: artifacts from before are then made anew.
FORM = 2
_ATTENTIONS = ("Attention", "QAttention")
# Inputs of `Attention`: activation, weight, bias, mask, past, bias of the scores. `QAttention` has scales between.
_ATTENTION_MASK, _ATTENTION_PAST, _SCORES_BIAS = 3, 4, 5
_QUANTIZED_MASK, _QUANTIZED_ZEROS, _QUANTIZED_PAST = 5, (6, 7), 8
# Attributes that `MultiHeadAttention` has too.
_KEPT_ATTRIBUTES = ("num_heads", "unidirectional", "mask_filter_value", "scale")
# Operators whose result for a token depends on that token alone, if their constants are the same for all tokens.
_TOKEN_BY_TOKEN = frozenset(
    (
        "Add", "BiasGelu", "Cast", "DequantizeLinear", "Div", "Erf", "FastGelu", "Gelu", "Identity",
        "LayerNormalization", "MatMul", "MatMulIntegerToFloat", "Mul", "Pow", "QuantizeLinear", "QuickGelu", "Relu",
        "Sigmoid", "SimplifiedLayerNormalization", "Sqrt", "Sub", "Tanh",
    )
)  # fmt: skip
_PRODUCTS = ("MatMul", "MatMulIntegerToFloat")
_NORMS = ("LayerNormalization", "SimplifiedLayerNormalization")
_LAST_AXES = (-1, 2)


def pack_saved(path: Path, *, tolerance: float = 0.0) -> bool:
    """Write a saved graph anew so that it skips padding; return False, and leave it, if it cannot.

    It cannot if no part works token by token, or if packed answers differ by more than the tolerance, a share of the
    largest number: without one, in any bit.
    """
    import onnx_ir as ir

    model = ir.load(path)
    types = {str(value.name): value.dtype.numpy() for value in model.graph.inputs}
    if not pack_tokens(model):
        return False
    # Into another folder first: weights may be read from the very file that is written anew.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        packed = Path(folder) / path.name
        write_model(model, packed)
        calls = list(padded_calls(types))
        if not agree_where_shown(calls, _answers(path, calls), _answers(packed, calls), tolerance=tolerance):
            return False
        for file in Path(folder).iterdir():
            file.replace(path.with_name(file.name))
    return True


def _answers(path: Path, calls: Sequence[PaddedCall]) -> list[list[Array]]:
    engine = Engine(str(path), threads=1)
    try:
        return [list(engine.infer(call.inputs).values()) for call in calls]
    finally:
        engine.close()


def pack_tokens(model: ir.Model) -> bool:
    """Pack the graph in place; return False, and change nothing, if it cannot be packed."""
    plan = _plan(model.graph)
    if plan is None:
        return False
    _Packer(model.graph, plan).pack()
    return True


class _Plan(NamedTuple):
    mask: ir.Value
    # What the first attention's result is added to: the encoder's input.
    entry: ir.Value
    features: int
    # The nodes that see nothing but tokens and constants, in order; attention is among them.
    inner: list[ir.Node]


def _plan(graph: ir.Graph) -> _Plan | None:
    mask = next((value for value in graph.inputs if value.name == MASK), None)
    attentions = [node for node in graph if node.op_type in _ATTENTIONS]
    if mask is None or not attentions or not all(map(_is_plain, attentions)):
        return None
    varying = _varying(graph)
    entry = _encoder_input(graph, attentions[0], varying)
    if entry is None:
        return None
    inner = _token_by_token(graph, entry, varying)
    if not set(attentions) <= set(inner):
        return None
    return _Plan(mask, entry, attentions[0].inputs[1].const_value.shape.numpy()[0], inner)


def _is_plain(attention: ir.Node) -> bool:
    """Whether Q, K and V have one width, nothing is remembered of an earlier call, and the result alone is read."""
    past = _ATTENTION_PAST if attention.op_type == "Attention" else _QUANTIZED_PAST
    remembers = len(attention.inputs) > past and attention.inputs[past] is not None
    unlike = any(key in attention.attributes for key in ("qkv_hidden_sizes", "do_rotary", "past_present_share_buffer"))
    return not remembers and not unlike and len(attention.outputs) == 1 and is_weight(attention.inputs[1], rank=2)


def _varying(graph: ir.Graph) -> set[ir.Value]:
    """Return the values that depend on the graph's inputs."""
    varying = set(graph.inputs)
    for node in graph:
        if any(value in varying for value in node.inputs):
            varying.update(node.outputs)
    return varying


def _encoder_input(graph: ir.Graph, attention: ir.Node, varying: set[ir.Value]) -> ir.Value | None:
    """Return what the first attention's result is added to."""
    after = set(attention.outputs)
    for node in graph:
        if node is attention or not any(value in after for value in node.inputs):
            continue
        for value in node.inputs:
            if value not in after and value in varying:
                return value if node.op_type == "Add" else None
        after.update(node.outputs)
    return None


def _token_by_token(graph: ir.Graph, entry: ir.Value, varying: set[ir.Value]) -> list[ir.Node]:
    packed, nodes = {entry}, []
    for node in graph:
        if node.op_type in _ATTENTIONS:
            fits = node.inputs[0] in packed and not any(value in packed for value in node.inputs[1:])
        else:
            read = [value for value in node.inputs if value in varying]
            fits = bool(read) and all(value in packed for value in read) and _fits_tokens(node, read)
        if fits:
            nodes.append(node)
            packed.update(node.outputs)
    return nodes


def _fits_tokens(node: ir.Node, read: Sequence[ir.Value]) -> bool:
    """Whether the node works token by token: `read` are its inputs that are no constants."""
    constants = [value for value in node.inputs if value is not None and value not in read]
    if node.op_type not in _TOKEN_BY_TOKEN or not all(map(is_weight, constants)):
        return False
    if node.op_type in _PRODUCTS:
        return list(read) == [node.inputs[0]] and is_weight(node.inputs[1], rank=2)
    if node.op_type in _NORMS:
        return node.attributes["axis"].value in _LAST_AXES if "axis" in node.attributes else True
    return all(_same_for_all_tokens(value) for value in constants)


def _same_for_all_tokens(constant: ir.Value) -> bool:
    return all(size == 1 for size in constant.const_value.shape.numpy()[:-1])


class _Packer:
    """Edits one graph in place."""

    def __init__(self, graph: ir.Graph, plan: _Plan) -> None:
        self._graph, self._plan = graph, plan
        self._first_axis = self._constant("packed_first_axis", np.int64(0))
        self._flat = self._constant("packed_flat", np.array([-1]))
        self._tokens, self._places = self._indices()

    def pack(self) -> None:
        inner = set(self._plan.inner)
        taken = self._taken(self._plan.entry, self._plan.features, "packed_entry")
        self._after(self._plan.entry, taken)
        self._read_instead(self._plan.entry, taken[-1].outputs[0], inner)
        produced = [value for node in self._plan.inner if node.op_type not in _ATTENTIONS for value in node.outputs]
        for node in self._plan.inner:
            if node.op_type in _ATTENTIONS:
                produced.append(self._split_attention(node, inner))
        for value in produced:
            self._spread_outside(value, inner)

    def _indices(self) -> tuple[ir.Value, ir.Value]:
        """Return where each token stands among all places, and which token each place has.

        The first place counts as a token always, so that there is one. Padding gets some token or other: attention
        hides what stands there, and nothing reads it.
        """
        one, end = self._constant("packed_one", np.array([1])), self._constant("packed_end", np.array([2**62]))
        import onnx_ir as ir

        nodes: list[ir.Node] = []

        def then(operator: str, inputs: Sequence[ir.Value], name: str, **attributes: Any) -> ir.Value:
            nodes.append(new_node(operator, inputs, f"packed_{name}", **attributes))
            return nodes[-1].outputs[0]

        flat = then("Reshape", [self._plan.mask, self._flat], "mask")
        rest = then("Slice", [flat, one, end], "mask_rest")
        shown = then("Cast", [then("Concat", [one, rest], "mask_all", axis=0)], "shown", to=ir.DataType.BOOL)
        tokens = then("Reshape", [then("NonZero", [shown], "found"), self._flat], "tokens")
        counts = then("CumSum", [then("Cast", [shown], "ones", to=ir.DataType.INT64), self._first_axis], "counts")
        order = then("Sub", [counts, one], "order")
        shaped = then("Reshape", [order, then("Shape", [self._plan.mask], "shape")], "places")
        self._graph.insert_before(self._graph[0], nodes)
        return tokens, shaped

    def _taken(self, value: ir.Value, features: int, name: str) -> list[ir.Node]:
        """Return nodes that take the tokens out of [texts, tokens, features]."""
        shape = self._constant(f"packed_row_{features}", np.array([-1, features]))
        row = new_node("Reshape", [value, shape], f"{name}_row")
        return [row, new_node("Gather", [row.outputs[0], self._tokens], f"{name}_tokens", axis=0)]

    def _split_attention(self, node: ir.Node, inner: set[ir.Node]) -> ir.Value:
        """Make Q, K and V of tokens, attend by texts, and take the tokens again; return the product's result."""
        name, weight = str(node.outputs[0].name), node.inputs[1]
        width = weight.const_value.shape.numpy()[1] // 3
        product, mask, scores_bias = self._product(node, f"{name}_qkv")
        spread = new_node("Gather", [product[-1].outputs[0], self._places], f"{name}_places", axis=0)
        sizes = self._constant(f"packed_thirds_{width}", np.array([width] * 3))
        parts = _node("Split", [spread.outputs[0], sizes], [f"{name}_{part}" for part in "qkv"], axis=-1)
        attributes = {key: node.attributes[key].value for key in _KEPT_ATTRIBUTES if key in node.attributes}
        attended = _node(
            "MultiHeadAttention",
            [*parts.outputs, None, mask, scores_bias],
            [f"{name}_texts"],
            "com.microsoft",
            **attributes,
        )
        taken = self._taken(attended.outputs[0], width, name)
        self._graph.insert_before(node, [*product, spread, parts, attended, *taken])
        node.outputs[0].replace_all_uses_with(taken[-1].outputs[0], replace_graph_outputs=True)
        self._graph.remove(node, safe=True)
        inner.update((*product, spread, taken[-1]))
        return taken[-1].outputs[0]

    def _product(self, node: ir.Node, name: str) -> tuple[list[ir.Node], ir.Value | None, ir.Value | None]:
        """Return the nodes of the attention's linear layer, its mask, and the bias of its scores."""
        inputs = [*node.inputs, *([None] * 9)]
        if node.op_type == "Attention":
            matmul = new_node("MatMul", inputs[:2], f"{name}_product")
            biased = [new_node("Add", [matmul.outputs[0], inputs[2]], name)] if inputs[2] is not None else []
            return [matmul, *biased], inputs[_ATTENTION_MASK], inputs[_SCORES_BIAS]
        activation, weight, bias, step, scale = inputs[:5]
        zeros = [inputs[index] for index in _QUANTIZED_ZEROS]
        operands = [activation, weight, step, scale, *zeros, bias]
        return [_node("MatMulIntegerToFloat", operands, [name], "com.microsoft")], inputs[_QUANTIZED_MASK], None

    def _spread_outside(self, value: ir.Value, inner: set[ir.Node]) -> None:
        """Give nodes that need texts, and the caller, [texts, tokens, features] again."""
        outside = [(node, index) for node, index in value.uses() if node not in inner]
        if not outside and not value.is_graph_output():
            return
        spread = new_node("Gather", [value, self._places], f"{value.name}_places", axis=0)
        spread.outputs[0].type = value.type
        self._after(value, [spread])
        for node, index in outside:
            node.replace_input_with(index, spread.outputs[0])
        for index, output in enumerate(self._graph.outputs):
            if output is value:
                value.name, spread.outputs[0].name = f"{value.name}_packed", value.name
                spread.outputs[0].shape = value.shape
                self._graph.outputs[index] = spread.outputs[0]
        value.shape = None

    def _read_instead(self, value: ir.Value, other: ir.Value, readers: set[ir.Node]) -> None:
        for node, index in list(value.uses()):
            if node in readers:
                node.replace_input_with(index, other)

    def _after(self, value: ir.Value, nodes: Sequence[ir.Node]) -> None:
        producer = value.producer()
        if producer is None:
            self._graph.insert_before(self._graph[0], nodes)
        else:
            self._graph.insert_after(producer, nodes)

    def _constant(self, name: str, array: Any) -> ir.Value:
        if name in self._graph.initializers:
            return self._graph.initializers[name]
        return add_weight(self._graph, name, array)


def _node(
    operator: str, inputs: Sequence[ir.Value | None], outputs: Sequence[str], domain: str = "", **attributes: Any
) -> ir.Node:
    import onnx_ir as ir

    return ir.node(
        operator, inputs, attributes, domain=domain, name=outputs[0], outputs=[ir.Value(name=name) for name in outputs]
    )
