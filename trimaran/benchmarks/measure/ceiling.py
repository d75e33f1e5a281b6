"""The measured ceiling: how fast this CPU runs the model's own matrix products with nothing around them.

Each product runs bare, in float and in 8-bit integers, by every library that has a kernel for it, and the fastest
counts. A candidate's share of the ceiling is the time of the bare products over its own time. The rest goes to
everything that is not a matrix product, and to slower kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trimaran.benchmarks.measure.products import MatrixProduct, products_of
from trimaran.core import isolation
from trimaran.core.samples import Shape
from trimaran.core.spec import Frozen
from trimaran.judging.probe_process import thread_environment
from trimaran.runtime.text import Array

Arithmetic = Literal["float32", "bfloat16", "int8"]
# What a precision may compute in: a type that does not help need not be used.
_ALLOWED: dict[Arithmetic, tuple[Arithmetic, ...]] = {
    "float32": ("float32",),
    "bfloat16": ("float32", "bfloat16"),
    "int8": ("float32", "int8"),
}
_TURNS = 5
_TURN_S = 0.02
# A kernel that takes so many times as long as another is timed once: without VNNI torch multiplies bytes one by one.
_HOPELESS = 4.0


class BareProduct(Frozen):
    """One product by its fastest kernel in one arithmetic."""

    product: MatrixProduct
    arithmetic: Arithmetic
    library: str
    # For all `product.count` of them.
    seconds: float

    @property
    def operations_per_s(self) -> float:
        return self.product.operations / self.seconds


class Ceiling(Frozen):
    """The bare products of a model at one shape."""

    shape: Shape
    threads: int
    bare: tuple[BareProduct, ...]

    def seconds(self, arithmetic: Arithmetic) -> float:
        """All products of the model, one after the other. Where integers do not help, the float kernel counts."""
        return sum(
            min(b.seconds for b in self.bare if b.product == product and b.arithmetic in _ALLOWED[arithmetic])
            for product in dict.fromkeys(b.product for b in self.bare)
        )

    def share(self, seconds: float, arithmetic: Arithmetic) -> float:
        return self.seconds(arithmetic) / seconds


def measure_ceilings(
    graph: Path,
    shapes: Sequence[Shape],
    *,
    threads: int,
    deadline_s: float = 300.0,
    begin: Callable[[Shape], None] = lambda shape: None,
) -> tuple[Ceiling, ...]:
    """In one child process, with the instruction set restricted only as far as it needs to run at all.

    `begin` is told each shape before it is timed.
    """
    products = {shape: [product.model_dump() for product in products_of(graph, shape)] for shape in shapes}

    def attempt(restriction: dict[str, str]) -> list[Ceiling]:
        ceilings: list[Ceiling] = []
        with isolation.Worker(environment={**thread_environment(threads), **restriction}) as worker:
            for shape, rows in products.items():
                begin(shape)
                timed = worker.call(time_products, deadline_s, products=rows, threads=threads)
                bare = tuple(BareProduct.model_validate(row) for row in timed)
                ceilings.append(Ceiling(shape=shape, threads=threads, bare=bare))
        return ceilings

    ceilings, _ = isolation.first_restriction_that_runs(attempt)
    return tuple(ceilings)


def time_products(products: Sequence[dict[str, Any]], threads: int) -> list[dict[str, Any]]:
    """Every product in every arithmetic, by the fastest library; each round times all of them."""
    import torch

    torch.set_num_threads(threads)
    calls: list[tuple[MatrixProduct, Arithmetic, str, Callable[[], Any]]] = []
    for row in products:
        product = MatrixProduct.model_validate(row)
        for arithmetic, library, prepare in KERNELS:
            if (call := prepare(product, threads)) is not None:
                calls.append((product, arithmetic, library, call))
    fastest = [float("inf")] * len(calls)
    for turn in range(_TURNS):
        for index, (product, arithmetic, _, call) in enumerate(calls):
            rivals = [fastest[other] for other, row in enumerate(calls) if row[:2] == (product, arithmetic)]
            if turn == 0 or fastest[index] <= max(_HOPELESS * min(rivals), _TURN_S):
                fastest[index] = min(fastest[index], _fastest(call))
    best: dict[tuple[MatrixProduct, Arithmetic], BareProduct] = {}
    for (product, arithmetic, library, _), seconds in zip(calls, fastest, strict=True):
        bare = BareProduct(product=product, arithmetic=arithmetic, library=library, seconds=seconds * product.count)
        known = best.get((product, arithmetic))
        if known is None or bare.seconds < known.seconds:
            best[product, arithmetic] = bare
    return [bare.model_dump() for bare in best.values()]


def _fastest(call: Callable[[], Any]) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + _TURN_S
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _torch_float(product: MatrixProduct, threads: int, kind: str = "float32") -> Callable[[], Any]:
    import torch

    dtype = getattr(torch, kind)
    left = torch.randn(product.batch, product.rows, product.inner).to(dtype)
    right = torch.randn(product.batch, product.inner, product.columns).to(dtype)
    out = torch.empty(product.batch, product.rows, product.columns, dtype=dtype)
    if product.batch == 1:
        return lambda: torch.mm(left[0], right[0], out=out[0])
    return lambda: torch.bmm(left, right, out=out)


def _torch_int8(product: MatrixProduct, threads: int) -> Callable[[], Any] | None:
    import torch

    if product.batch > 1:
        return None
    left = torch.randint(-127, 127, (product.rows, product.inner), dtype=torch.int8)
    right = torch.randint(-127, 127, (product.inner, product.columns), dtype=torch.int8)
    return lambda: torch._int_mm(left, right)


def _onnxruntime_int8(product: MatrixProduct, threads: int) -> Callable[[], Any] | None:
    """Unsigned activations by signed constant weights: the form that has packed kernels.

    Weights have 7 bits, which no CPU's sums saturate with; the kernels take as long as with 8.
    """
    generator = np.random.default_rng(0)
    left = generator.integers(0, 255, (product.rows, product.inner)).astype(np.uint8)
    weights = generator.integers(-63, 64, (product.inner, product.columns)).astype(np.int8)
    return _onnxruntime_product(product, threads, "MatMulInteger", left, weights)


def _onnxruntime_float(product: MatrixProduct, threads: int) -> Callable[[], Any] | None:
    """Constant weights, which are packed ahead as in a real graph."""
    generator = np.random.default_rng(0)
    left = generator.standard_normal((product.rows, product.inner), np.float32)
    weights = generator.standard_normal((product.inner, product.columns), np.float32)
    return _onnxruntime_product(product, threads, "MatMul", left, weights)


def _onnxruntime_product(
    product: MatrixProduct, threads: int, operator: str, left: Array, weights: Array
) -> Callable[[], Any] | None:
    import onnxruntime
    from onnx import helper, numpy_helper

    if product.batch > 1 or not product.weights:
        return None
    result = np.dtype(np.int32 if left.dtype == np.uint8 else np.float32)
    graph = helper.make_graph(
        [helper.make_node(operator, ["left", "right"], ["product"])],
        "product",
        [helper.make_tensor_value_info("left", helper.np_dtype_to_tensor_dtype(left.dtype), left.shape)],
        [helper.make_tensor_value_info("product", helper.np_dtype_to_tensor_dtype(result), None)],
        [numpy_helper.from_array(weights, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"left": left})


KERNELS: tuple[tuple[Arithmetic, str, Callable[[MatrixProduct, int], Callable[[], Any] | None]], ...] = (
    ("float32", "torch", _torch_float),
    ("float32", "onnxruntime", _onnxruntime_float),
    ("bfloat16", "torch", partial(_torch_float, kind="bfloat16")),
    ("int8", "onnxruntime", _onnxruntime_int8),
    ("int8", "torch", _torch_int8),
)
