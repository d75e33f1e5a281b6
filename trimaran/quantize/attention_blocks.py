"""Rewrites attention for long texts: a block of queries at a time, so that memory no longer grows with their square.

Attention keeps a score for each pair of tokens and each head. Of one text of 8,192 tokens and 12 heads these are
3.2 GB, and ONNX Runtime holds several copies. Each query's answer depends on its own scores alone, so blocks of queries
are computed one after the other. Example: 8,192 queries in blocks of 512 keep 16 times fewer scores at once.

    before    MatMul(Q, K) -> Mul(scale) -> Add(mask) -> Softmax -> MatMul(V)
    after     Loop over blocks: the same five nodes on Q[block] and mask[block], joined along the queries

A text of at most one block takes one turn of the loop.

A block also leaves out the keys before the first and behind the last one that its mask shows to any of its queries.
Their weights would be exactly 0. So a local layer computes local scores only: with a window of 64 tokens to each side,
a block of 512 queries reads 640 keys. A causal layer reads no key behind the block.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from trimaran.core.call_memory import BLOCK
from trimaran.core.onnx_graph import add_weight, infer_types, is_weight, new_node
from trimaran.core.onnx_write import write_model
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

# Profiles up to so many tokens keep their attention whole.
LONG_FROM = 1024
# Raise this when the same graph is rewritten differently: artifacts from before are then made anew.
FORM = 2
# A key whose score gets less than this has the weight 0, whatever its score was. Masks hold the smallest float32, or
# minus infinity.
_HIDDEN_BELOW = -1e30
# ONNX's number of the type, whose largest entry ONNX Runtime finds.
_INT32 = 6
# Operators between both products whose result for a query depends on that query's scores alone.
_BY_QUERY = frozenset(("Add", "Cast", "Div", "Mul", "Softmax", "Sub", "Tanh", "Where"))
_QUERIES, _KEYS = -2, -1


def block_saved(path: Path, longest: int) -> int:
    """Write a saved graph anew with blocks, if its profile has long texts; return how many attentions have them."""
    import onnx_ir as ir

    if longest <= LONG_FROM:
        return 0
    model = ir.load(path)
    count = block_attention(model)
    if count:
        # Into another folder first: weights may be read from the very file that is written anew.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            write_model(model, Path(folder) / path.name)
            for file in Path(folder).iterdir():
                file.replace(path.with_name(file.name))
    return count


def block_attention(model: ir.Model) -> int:
    """Rewrite every attention of the graph whose nodes are all visible; return how many there were."""
    infer_types(model)
    found = [attention for node in model.graph if node.op_type == "Softmax" and (attention := _attention(node))]
    for attention in found:
        _Blocks(model.graph, attention).insert()
    return len(found)


class _Attention(NamedTuple):
    # The first is the product of queries and keys, the last that with the values.
    nodes: list[ir.Node]
    # What the nodes between read beside the scores, such as a mask.
    beside: list[ir.Value]

    @property
    def queries(self) -> ir.Value:
        return _input(self.nodes[0], 0)

    @property
    def keys(self) -> ir.Value:
        """Turned over: the last axis counts the keys."""
        return _input(self.nodes[0], 1)

    @property
    def values(self) -> ir.Value:
        return _input(self.nodes[-1], 1)

    @property
    def mask(self) -> ir.Value | None:
        """What is added to the scores last, if it differs between queries; None if nothing is."""
        import onnx_ir as ir

        softmax = next(place for place, node in enumerate(self.nodes) if node.op_type == "Softmax")
        added = self.nodes[softmax - 1]
        beside = [value for value in added.inputs if value in self.beside]
        if added.op_type != "Add" or len(beside) != 1 or (mask := beside[0]) is None or mask.shape is None:
            return None
        differs = len(mask.shape) >= 2 and mask.shape[_QUERIES] != 1
        return mask if differs and mask.dtype == ir.DataType.FLOAT else None


def _attention(softmax: ir.Node) -> _Attention | None:
    """Return the attention around a softmax over keys, or None if it is written in another way."""
    rank = _rank(softmax.inputs[0])
    over_keys = rank is not None and softmax.attributes.get_int("axis", -1) in (-1, rank - 1)
    before, after = _from_product(softmax), _to_values(softmax)
    if not over_keys or not before or not after:
        return None
    nodes = [*before, *after]
    inner = {node.outputs[0] for node in nodes}
    beside = [value for node in nodes[1:-1] for value in node.inputs if value is not None and value not in inner]
    if any(_rank(value) is None for value in beside):
        return None
    return _Attention(nodes, list(dict.fromkeys(beside)))


def _from_product(softmax: ir.Node) -> list[ir.Node]:
    """The nodes from the product of queries and keys up to the softmax; empty if others read between, or none leads."""
    nodes: list[ir.Node] = []
    value = softmax.inputs[0]
    while value is not None and len(value.uses()) == 1 and (node := value.producer()) is not None:
        nodes.insert(0, node)
        if node.op_type == "MatMul":
            return [] if any(map(is_weight, node.inputs)) else nodes
        if node.op_type not in _BY_QUERY:
            return []
        value = _scores_input(node)
    return []


def _to_values(softmax: ir.Node) -> list[ir.Node]:
    """The softmax and the nodes up to the product with the values; empty if others read between."""
    nodes = [softmax]
    while nodes[-1].op_type != "MatMul":
        readers = [use.node for use in nodes[-1].outputs[0].uses()]
        if len(readers) != 1 or readers[0].op_type not in (*_BY_QUERY, "MatMul"):
            return []
        nodes.append(readers[0])
    return nodes if nodes[-1].inputs[0] is nodes[-2].outputs[0] else []


def _scores_input(node: ir.Node) -> ir.Value | None:
    """The input of an elementwise node that comes from the product of queries and keys; a mask does not."""
    values = [value for value in node.inputs if value is not None and not is_weight(value)]
    return next((value for value in values if _leads_to_product(value)), None)


def _leads_to_product(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or node.op_type == "MatMul":
        return node is not None and not any(map(is_weight, node.inputs))
    return node.op_type in _BY_QUERY and any(
        _leads_to_product(inner) for inner in node.inputs if inner is not None and not is_weight(inner)
    )


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    assert value is not None
    return value


class _Blocks:
    """One attention, which becomes a loop."""

    def __init__(self, graph: ir.Graph, attention: _Attention) -> None:
        self._graph, self._attention = graph, attention
        self._name = f"{attention.nodes[0].name}/blocks"

    def insert(self) -> None:
        """Put the loop in the place of the last node, and take the attention's own nodes away."""
        import onnx_ir as ir

        *inner, last = self._attention.nodes
        result = last.outputs[0]
        shape = new_node("Shape", [self._attention.queries], self._of("shape"))
        length = new_node("Gather", [shape.outputs[0], self._number(_QUERIES)], self._of("length"))
        rounded = new_node("Add", [length.outputs[0], self._number(BLOCK - 1)], self._of("rounded"))
        turns = new_node("Div", [rounded.outputs[0], self._number(BLOCK)], self._of("turns"))
        nothing = self._sliced(self._attention.values, self._numbers([0]), self._numbers([0]), "nothing")
        setup = [shape, length, rounded, turns, nothing]
        beside, mask = self._attention.beside, self._attention.mask
        rows = {value: self._last(value, _QUERIES, setup) for value in beside if (_rank(value) or 0) >= 2}
        columns = {value: self._last(value, _KEYS, setup) for value in beside if (_rank(value) or 0) >= 1 and mask}
        body = self._body(rows, columns)
        joined = ir.Value(name=result.name, shape=result.shape, type=result.type)
        result.name = self._of("whole")
        loop = ir.node(
            "Loop",
            [turns.outputs[0], None, nothing.outputs[0]],
            {"body": body},
            name=self._of("loop"),
            outputs=[joined],
        )
        self._graph.insert_before(last, [*setup, loop])
        result.replace_all_uses_with(joined, replace_graph_outputs=True)
        for node in reversed([*inner, last]):
            self._graph.remove(node, safe=True)

    def _last(self, value: ir.Value, axis: int, setup: list[ir.Node]) -> ir.Value:
        """The last place along an axis: 0 if all queries share one row of a mask."""
        of = f"{value.name}/axis{-axis}"
        shape = new_node("Shape", [value], self._of(f"{of}/shape"))
        size = new_node("Gather", [shape.outputs[0], self._number(axis)], self._of(f"{of}/size"))
        last = new_node("Sub", [size.outputs[0], self._number(1)], self._of(f"{of}/last"))
        setup += [shape, size, last]
        return last.outputs[0]

    def _body(self, last_rows: dict[ir.Value, ir.Value], last_columns: dict[ir.Value, ir.Value]) -> ir.Graph:
        import onnx_ir as ir

        turn = ir.Value(name=self._of("turn"), type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
        going = ir.Value(name=self._of("going"), type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
        values = self._attention.values
        done = ir.Value(name=self._of("done"), type=values.type)
        begin = new_node("Mul", [turn, self._number(BLOCK)], self._of("begin"))
        nodes = [begin]

        def block_of(value: ir.Value, first: ir.Value) -> ir.Value:
            """The block's rows; a slice that reaches beyond the end stops there."""
            start = new_node("Reshape", [first, self._numbers([1])], self._of(f"{value.name}/start"))
            end = new_node("Add", [start.outputs[0], self._numbers([BLOCK])], self._of(f"{value.name}/end"))
            part = self._sliced(value, start.outputs[0], end.outputs[0], f"{value.name}/block")
            nodes.extend((start, end, part))
            return part.outputs[0]

        taken = {self._attention.queries: block_of(self._attention.queries, begin.outputs[0])}
        for value, last in last_rows.items():
            first = new_node("Min", [begin.outputs[0], last], self._of(f"{value.name}/first"))
            nodes.append(first)
            taken[value] = block_of(value, first.outputs[0])
        if mask := self._attention.mask:
            taken |= self._seen_only(taken, taken[mask], last_columns, nodes)
        for node in self._attention.nodes:
            copy = ir.Node(
                node.domain, node.op_type, [taken.get(value, value) if value else None for value in node.inputs],
                attributes=list(node.attributes.values()), name=self._of(str(node.name)),
                outputs=[ir.Value(name=self._of(str(node.outputs[0].name)), type=node.outputs[0].type)],
            )  # fmt: skip
            taken[node.outputs[0]] = copy.outputs[0]
            nodes.append(copy)
        joined = new_node("Concat", [done, nodes[-1].outputs[0]], self._of("with"), axis=_QUERIES)
        joined.outputs[0].type = values.type
        onward = new_node("Identity", [going], self._of("onward"))
        onward.outputs[0].type, onward.outputs[0].shape = going.type, going.shape
        nodes += [joined, onward]
        return ir.Graph(
            [turn, going, done], [onward.outputs[0], joined.outputs[0]], nodes=nodes, name=self._of("body"),
        )  # fmt: skip

    def _seen_only(
        self,
        taken: dict[ir.Value, ir.Value],
        mask: ir.Value,
        last_columns: dict[ir.Value, ir.Value],
        nodes: list[ir.Node],
    ) -> dict[ir.Value, ir.Value]:
        """Keys, values and all beside the scores, from the first to the last key that a block of the mask shows.

        A block that shows no key keeps all: those are queries at padding, whose answers nobody reads.
        """
        first, end = self._seen(mask, nodes)
        keys, values = self._attention.keys, self._attention.values
        cut = {
            keys: self._sliced(keys, first, end, "keys/seen", axis=_KEYS),
            values: self._sliced(values, first, end, "values/seen"),
        }
        for value, last in last_columns.items():
            # One column for all keys stays one column.
            begin = new_node("Min", [first, last], self._of(f"{value.name}/column"))
            nodes.append(begin)
            cut[value] = self._sliced(taken.get(value, value), begin.outputs[0], end, f"{value.name}/seen", axis=_KEYS)
        nodes += cut.values()
        return {value: node.outputs[0] for value, node in cut.items()}

    def _seen(self, mask: ir.Value, nodes: list[ir.Node]) -> tuple[ir.Value, ir.Value]:
        """The first key that any query of the block sees, and the place behind the last one."""
        highest = self._highest(mask)
        shown = new_node("Greater", [highest.outputs[0], self._least_shown()], self._of("seen/shown"))
        counted = new_node("Cast", [shown.outputs[0]], self._of("seen/counted"), to=_INT32)
        first = new_node("ArgMax", [counted.outputs[0]], self._of("seen/first"), axis=0, keepdims=1)
        last = new_node("ArgMax", [counted.outputs[0]], self._of("seen/last"), axis=0, keepdims=1, select_last_index=1)
        end = new_node("Add", [last.outputs[0], self._number(1)], self._of("seen/end"))
        nodes += [highest, shown, counted, first, last, end]
        return first.outputs[0], end.outputs[0]

    def _highest(self, mask: ir.Value) -> ir.Node:
        """The mask's largest number for each key. From opset 18 on, the operator takes its axes as an input."""
        axes = list(range(_rank(self._attention.mask) or 0))[:_KEYS]
        if self._graph.opset_imports[""] < 18:
            return new_node("ReduceMax", [mask], self._of("seen/highest"), axes=axes, keepdims=0)
        among = self._weight(f"axes/{len(axes)}", np.asarray(axes, np.int64))
        return new_node("ReduceMax", [mask, among], self._of("seen/highest"), keepdims=0)

    def _least_shown(self) -> ir.Value:
        return self._weight("hidden below", np.asarray(_HIDDEN_BELOW, np.float32))

    def _sliced(self, value: ir.Value, start: ir.Value, end: ir.Value, name: str, *, axis: int = _QUERIES) -> ir.Node:
        return new_node("Slice", [value, start, end, self._numbers([axis])], self._of(name))

    def _number(self, number: int) -> ir.Value:
        return self._weight(str(number), np.asarray(number, np.int64))

    def _numbers(self, numbers: list[int]) -> ir.Value:
        return self._weight(f"list/{numbers[0]}", np.asarray(numbers, np.int64))

    def _weight(self, name: str, array: Array) -> ir.Value:
        """One weight for each number, whatever reads it."""
        name = f"attention_blocks/{name}"
        known = self._graph.initializers.get(name)
        return known if known is not None else add_weight(self._graph, name, array)

    def _of(self, name: str) -> str:
        return f"{self._name}/{name}"
