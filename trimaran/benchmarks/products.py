"""The matrix products of a graph at a shape: what any engine has to compute, however it goes about it."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

from trimaran.benchmarks.results import Shape
from trimaran.errors import UsageError
from trimaran.spec import Frozen


class Product(Frozen):
    """`count` times: `batch` independent products of (rows x inner) by (inner x columns)."""

    count: int
    batch: int
    rows: int
    inner: int
    columns: int
    weights: bool

    @property
    def operations(self) -> int:
        """A multiplication and an addition for every element of the sum."""
        return 2 * self.count * self.batch * self.rows * self.inner * self.columns


def products_of(graph: Path, shape: Shape) -> tuple[Product, ...]:
    """Every MatMul and Gemm of an fp32 ONNX graph with its symbolic axes set to the shape."""
    import onnx

    model = onnx.load(graph, load_external_data=False)
    sizes = {"batch": shape.batch, "sequence": shape.sequence}
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_value = sizes[dimension.dim_param]
    del model.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    shapes = weights | {
        value.name: tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    found: Counter[tuple[int, int, int, int, bool]] = Counter()
    for node in inferred.node:
        if node.op_type not in ("MatMul", "Gemm"):
            continue
        left, right = shapes.get(node.input[0], ()), shapes.get(node.input[1], ())
        if len(left) < 2 or len(right) < 2 or 0 in (*left, *right):
            raise UsageError(f"The shape of {node.name} does not follow from the graph's inputs.")
        flags = {attribute.name: attribute.i for attribute in node.attribute}
        columns = right[-2] if flags.get("transB") else right[-1]
        fixed = len(right) == 2
        rows, batch = (prod(left[:-1]), 1) if fixed else (left[-2], prod(left[:-2]))
        found[batch, rows, left[-1], columns, node.input[1] in weights] += 1
    return tuple(
        Product(count=count, batch=batch, rows=rows, inner=inner, columns=columns, weights=fixed)
        for (batch, rows, inner, columns, fixed), count in found.items()
    )
