from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from trimaran.benchmarks.measure import ceiling as ceiling_module
from trimaran.benchmarks.measure.ceiling import BareProduct, Ceiling, measure_ceilings
from trimaran.benchmarks.measure.products import MatrixProduct, products_of
from trimaran.core.samples import Shape


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """x(batch, sequence, 8) by weights(8, 4), then by its own transpose: one product of each kind."""
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [8, 4], [0.5] * 32)
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["hidden"]),
        helper.make_node("Transpose", ["hidden"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["hidden", "turned"], ["scores"]),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "two products",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", 8])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "sequence", "sequence"])],
            [weights],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    path = tmp_path / "model.onnx"
    save(model, path)
    return path


def test_products_of_weights_join_rows_and_those_of_activations_stay_apart(graph: Path) -> None:
    products = products_of(graph, Shape(batch=3, sequence=5))
    assert products == (
        MatrixProduct(count=1, batch=1, rows=15, inner=8, columns=4, weights=True),
        MatrixProduct(count=1, batch=3, rows=5, inner=4, columns=5, weights=False),
    )
    assert [product.operations for product in products] == [2 * 15 * 8 * 4, 2 * 3 * 5 * 4 * 5]


def test_a_product_is_timed_in_both_arithmetics_where_there_are_kernels(graph: Path) -> None:
    shapes = [Shape(batch=3, sequence=5), Shape(batch=1, sequence=7)]
    begun: list[Shape] = []
    ceiling, other = measure_ceilings(graph, shapes, threads=1, begin=begun.append)
    assert [ceiling.shape, other.shape] == begun == shapes
    timed = {(bare.product.weights, bare.arithmetic) for bare in ceiling.bare}
    floats = {(weights, kind) for weights in (True, False) for kind in ("float32", "bfloat16")}
    assert timed == {*floats, (True, "int8")}
    assert all(bare.operations_per_s > 0 for bare in ceiling.bare)


def test_a_kernel_that_is_far_slower_than_another_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without VNNI one call of torch's takes seconds, and would be repeated in every turn."""
    calls: Counter[str] = Counter()

    def kernel(name: str, pause_s: float) -> Callable[..., Callable[[], None]]:
        def call() -> None:
            calls[name] += 1
            time.sleep(pause_s)

        return lambda product, threads: call

    kernels = (("int8", "quick", kernel("quick", 0.0)), ("int8", "slow", kernel("slow", 0.3)))
    monkeypatch.setattr(ceiling_module, "KERNELS", kernels)
    product = MatrixProduct(count=1, batch=1, rows=4, inner=8, columns=8, weights=True)
    (bare,) = ceiling_module.time_products([product.model_dump()], threads=1)
    assert bare["library"] == "quick"
    assert calls["slow"] == 2, "to warm up, and once more"


def test_the_ceiling_takes_the_faster_arithmetic_of_each_product() -> None:
    one, other = (MatrixProduct(count=2, batch=1, rows=rows, inner=8, columns=8, weights=True) for rows in (4, 16))
    ceiling = Ceiling(
        shape=Shape(batch=1, sequence=4),
        threads=2,
        bare=(
            BareProduct(product=one, arithmetic="float32", library="torch", seconds=1.0),
            BareProduct(product=one, arithmetic="int8", library="torch", seconds=3.0),
            BareProduct(product=other, arithmetic="float32", library="torch", seconds=4.0),
            BareProduct(product=other, arithmetic="int8", library="onnxruntime", seconds=2.0),
        ),
    )
    assert ceiling.seconds("float32") == 5.0
    assert ceiling.seconds("bfloat16") == 5.0, "no kernel in bfloat16 was timed"
    assert ceiling.seconds("int8") == 3.0
    assert ceiling.share(6.0, "int8") == 0.5
