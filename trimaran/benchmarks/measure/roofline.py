"""What an engine's kernels should take on a GPU that is not at hand: a roofline, never a measurement.

A kernel takes the longer of two times: its arithmetic at the GPU's dense peak, and its bytes at the GPU's bandwidth.
The gap between two kernels of a CUDA graph is added. The kernels come from the builder's own receipt, the products
from the graph.
Real kernels reach half to nine tenths of a peak, so the figure is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trimaran.benchmarks.measure.products import MatrixProduct
from trimaran.core.spec import Frozen

GpuArithmetic = Literal["Half", "Int8"]
_BYTES: Mapping[GpuArithmetic, int] = {"Half": 2, "Int8": 1}
_HALF_BYTES = 2
GAP_S = 1e-6  # between kernels of one CUDA graph; assumed


class Gpu(Frozen):
    """Dense peaks and bandwidth as the vendor's data sheet gives them."""

    name: str
    compute_capability: str
    half_per_s: float
    int8_per_s: float
    bytes_per_s: float

    def peak(self, arithmetic: GpuArithmetic) -> float:
        return self.half_per_s if arithmetic == "Half" else self.int8_per_s


GPUS: tuple[Gpu, ...] = (
    Gpu(name="T4", compute_capability="7.5", half_per_s=65e12, int8_per_s=130e12, bytes_per_s=320e9),
    Gpu(name="A10", compute_capability="8.6", half_per_s=125e12, int8_per_s=250e12, bytes_per_s=600e9),
    Gpu(name="L4", compute_capability="8.9", half_per_s=121e12, int8_per_s=242e12, bytes_per_s=300e9),
    Gpu(name="A100 40 GB", compute_capability="8.0", half_per_s=312e12, int8_per_s=624e12, bytes_per_s=1555e9),
    Gpu(name="RTX 5090", compute_capability="12.0", half_per_s=419e12, int8_per_s=838e12, bytes_per_s=1792e9),
    Gpu(name="H100 SXM", compute_capability="9.0", half_per_s=989e12, int8_per_s=1979e12, bytes_per_s=3350e9),
)


class KernelReceipt(Frozen):
    """What the builder's table of fused layers says."""

    kernels: int
    # Products and fused attentions, by the type that they read.
    products: dict[str, int]
    fused_attentions: dict[str, int]

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> KernelReceipt:
        return cls.model_validate({name: details[name] for name in cls.model_fields})

    @property
    def pointwise(self) -> int:
        """Kernels that only move numbers: norms, activations, quantisation."""
        return max(0, self.kernels - sum(self.products.values()) - sum(self.fused_attentions.values()))


class Expectation(Frozen):
    """Seconds by cause, and the bytes that cross the GPU's memory."""

    gpu: str
    products_s: float
    attention_s: float
    pointwise_s: float
    gaps_s: float
    bytes_moved: int

    @property
    def seconds(self) -> float:
        return self.products_s + self.attention_s + self.pointwise_s + self.gaps_s


def expect(products: Sequence[MatrixProduct], receipt: KernelReceipt, gpu: Gpu) -> Expectation:
    """Linear products run in the type that most of the receipt's products read; a fused attention keeps its scores."""
    linear = [product for product in products if product.weights]
    attention = [product for product in products if not product.weights]
    kind: GpuArithmetic = "Int8" if receipt.products.get("Int8", 0) > receipt.products.get("Half", 0) else "Half"
    fused: GpuArithmetic = "Int8" if receipt.fused_attentions.get("Int8") else "Half"
    linear_bytes = [_bytes(product, _BYTES[kind]) for product in linear]
    attention_bytes = [
        _attention_bytes(product, _BYTES[fused], fused=bool(receipt.fused_attentions)) for product in attention
    ]
    rows = max(product.rows for product in linear)
    width = min(min(product.inner, product.columns) for product in linear)  # between two layers
    pointwise_bytes = receipt.pointwise * 2 * rows * width * _HALF_BYTES
    return Expectation(
        gpu=gpu.name,
        products_s=sum(map(lambda p, b: _time(p, b, gpu, kind), linear, linear_bytes)),
        attention_s=sum(map(lambda p, b: _time(p, b, gpu, fused), attention, attention_bytes)),
        pointwise_s=pointwise_bytes / gpu.bytes_per_s,
        gaps_s=receipt.kernels * GAP_S,
        bytes_moved=sum(linear_bytes) + sum(attention_bytes) + pointwise_bytes,
    )


def _time(product: MatrixProduct, moved: int, gpu: Gpu, kind: GpuArithmetic) -> float:
    return max(product.operations / gpu.peak(kind), moved / gpu.bytes_per_s)


def _bytes(product: MatrixProduct, size: int) -> int:
    """Both operands once, the result in half precision."""
    operands = product.rows * product.inner + product.inner * product.columns
    return product.count * product.batch * (operands * size + product.rows * product.columns * _HALF_BYTES)


def _attention_bytes(product: MatrixProduct, size: int, *, fused: bool) -> int:
    """A fused attention reads queries, keys and values and writes the result; the scores never leave the chip."""
    if not fused:
        return _bytes(product, size)
    narrow = min(product.inner, product.columns)
    return product.count * product.batch * 2 * product.rows * narrow * size
