"""The matrix products of a graph at a shape: what every engine has to compute."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

from trimaran.core.errors import UsageError
from trimaran.core.samples import Shape
from trimaran.core.scratch import ScratchFolder
from trimaran.core.spec import Frozen


class MatrixProduct(Frozen):
    """(rows x inner) by (inner x columns)."""

    # How often it stands in the graph.
    count: int
    # Independent products that run as one.
    batch: int
    rows: int
    inner: int
    columns: int
    # Whether the right side is a constant: a linear layer, not attention.
    weights: bool

    def __str__(self) -> str:
        """`12 × 1 × (128 x 384 by 384 x 384)`."""
        sizes = f"{self.rows} x {self.inner} by {self.inner} x {self.columns}"
        return f"{self.count} × {self.batch} × ({sizes})"

    @property
    def operations(self) -> int:
        """A multiplication and an addition for every element of the sum."""
        return 2 * self.count * self.batch * self.rows * self.inner * self.columns


def products_of(graph: Path, shape: Shape) -> tuple[MatrixProduct, ...]:
    """Every MatMul and Gemm of an fp32 ONNX graph with its symbolic axes set to the shape."""
    import onnx

    with ScratchFolder("products") as folder:
        fixed_shape = onnx.load(_at_shape(graph, shape, Path(folder)), load_external_data=False)
    inferred = onnx.shape_inference.infer_shapes(fixed_shape, data_prop=True).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
    shapes = weights | {
        value.name: tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    counts: Counter[tuple[int, int, int, int, bool]] = Counter()
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
        counts[batch, rows, left[-1], columns, node.input[1] in weights] += 1
    return tuple(
        MatrixProduct(count=count, batch=batch, rows=rows, inner=inner, columns=columns, weights=fixed)
        for (batch, rows, inner, columns, fixed), count in counts.items()
    )


def _at_shape(graph: Path, shape: Shape, folder: Path) -> Path:
    """The graph with every size that follows from the shape folded into it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.add_free_dimension_override_by_name("batch", shape.batch)
    options.add_free_dimension_override_by_name("sequence", shape.sequence)
    options.optimized_model_filepath = str(folder / "model.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
    onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return folder / "model.onnx"
