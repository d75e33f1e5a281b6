"""Large tables of token vectors in INT8: whole numbers with a scale for each row.

A table of 250,000 tokens is half of bge-m3. It costs memory and hardly any time, so only large ones are encoded. In
the graph, the rows that a text reads are widened behind the look-up:

    ids -> Gather int8 rows -> Cast -> Mul -> token vectors
    ids -> Gather scales ---------------^
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimaran.core.onnx_graph import add_weight, array_of, is_weight, new_node
from trimaran.runtime.text import Array

if TYPE_CHECKING:
    import onnx_ir as ir

# Smaller tables stay as they are: their memory does not matter, and INT8 would change every answer a little.
SMALLEST_BYTES = 100_000_000
_LEVELS = 127
# Rows that are encoded at a time.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class EncodedTable:
    # One row of int8 for each token, and the number that one step of each row stands for.
    levels: Array
    scales: Array


def large_tables(model: ir.Model) -> list[str]:
    """Names of the weights that are only looked up by row, and large enough."""
    return [
        name
        for name, value in model.graph.initializers.items()
        if is_weight(value, rank=2)
        and value.const_value.dtype.name == "FLOAT"
        and value.const_value.nbytes >= SMALLEST_BYTES
        and not value.is_graph_output()
        and value.uses()
        and all(_looks_up(node, side) for node, side in value.uses())
    ]


def encoded_table(value: ir.Value) -> EncodedTable:
    """Symmetric steps of each row. Rows are encoded in blocks: a float copy of the table would be the largest thing."""
    table = array_of(value)
    levels = np.empty(table.shape, np.int8)
    scales = np.empty((len(table), 1), np.float32)
    for begin in range(0, len(table), _BLOCK):
        block = table[begin : begin + _BLOCK]
        steps = np.abs(block).max(axis=1, keepdims=True) / _LEVELS
        steps[steps == 0] = 1
        scales[begin : begin + _BLOCK] = steps
        levels[begin : begin + _BLOCK] = np.rint(block / steps)
    return EncodedTable(levels, scales)


def write_tables(model: ir.Model, tables: Mapping[str, EncodedTable]) -> None:
    """Make every look-up of these tables one in whole numbers, in place."""
    import onnx_ir as ir

    for name, table in tables.items():
        rows = add_weight(model.graph, f"{name}_s8", table.levels)
        scales = add_weight(model.graph, f"{name}_scales", table.scales)
        for node, _ in list(model.graph.initializers[name].uses()):
            ids, result = node.inputs[1], node.outputs[0]
            prefix = f"{node.name or result.name}_s8"
            looked_up = new_node("Gather", [rows, ids], f"{prefix}_rows", axis=0)
            widened = new_node("Cast", [looked_up.outputs[0]], f"{prefix}_wide", to=ir.DataType.FLOAT.value)
            steps = new_node("Gather", [scales, ids], f"{prefix}_steps", axis=0)
            product = new_node("Mul", [widened.outputs[0], steps.outputs[0]], f"{prefix}_vectors")
            product.outputs[0].type, product.outputs[0].shape = result.type, result.shape
            node.append([looked_up, widened, steps, product])
            result.replace_all_uses_with(product.outputs[0], replace_graph_outputs=True)


def _looks_up(node: ir.Node, side: int) -> bool:
    axis = node.attributes.get("axis")
    return node.op_type == "Gather" and side == 0 and (axis is None or axis.as_int() == 0)
