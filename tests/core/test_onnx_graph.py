"""Equal weights are stored once, Identity nodes do not hide them, and a graph's facts are counted."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from trimaran.core.onnx_graph import check_graph, drop_identities, graph_facts, is_weight, share_equal_weights

TEXT = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 3] y) {
    same = Identity (second)
    first_sum = MatMul (x, first)
    second_sum = MatMul (x, same)
    y = Add (first_sum, second_sum)
}"""


def model_of(text: str, **weights: np.ndarray) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    return ir.from_proto(proto)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_an_identity_before_a_weight_is_dropped_and_equal_weights_become_one() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = model_of(TEXT, first=weight, second=weight)
    drop_identities(model)
    assert operators(model) == ["MatMul", "MatMul", "Add"]
    assert share_equal_weights(model) == weight.nbytes
    assert list(model.graph.initializers) == ["first"]
    check_graph(model)


def test_a_transposed_view_is_compared_by_its_numbers_and_written_in_order() -> None:
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    model = model_of(TEXT, first=weight, second=weight)
    model.graph.initializers["second"].const_value = ir.Tensor(np.ascontiguousarray(weight.T).T, name="second")
    assert share_equal_weights(model) == weight.nbytes


def test_weights_of_another_shape_stay_two() -> None:
    model = model_of(TEXT, first=np.zeros((4, 3), np.float32), second=np.zeros((4, 3), np.float16))
    assert share_equal_weights(model) == 0
    assert len(model.graph.initializers) == 2


def test_an_identity_inside_a_branch_stays() -> None:
    """DeBERTa has such: a branch must compute what it gives, and gives a value of the graph around it."""
    model = model_of(
        """<ir_version: 9, opset_import: ["": 17]> g (bool flag, float[4] x) => (float[4] y) {
            y = If (flag) <then_branch = a () => (float[4] p) { p = Identity (x) },
                           else_branch = b () => (float[4] q) { q = Identity (weight) }>
        }""",
        weight=np.ones(4, np.float32),
    )
    drop_identities(model)
    check_graph(model)
    assert share_equal_weights(model) == 0


def test_facts_tell_what_folding_left_and_where_int64_is_computed() -> None:
    model = model_of(
        """<ir_version: 9, opset_import: ["": 17]> g (int64[n, 4] ids, float[n, 4] x) => (float[n, 3] y) {
            shifted = Add (ids, ids)
            cast = Cast <to = 1> (shifted)
            turned = Transpose (weight)
            both = Add (x, cast)
            y = MatMul (both, turned)
        }""",
        weight=np.ones((3, 4), np.float32),
    )
    facts = graph_facts(model)
    assert facts["opset"] == 17
    assert facts["foldable_nodes"] == 1
    assert facts["int64_operators"] == {"Add": 1}
    assert facts["operators"] == {"Add": 2, "Cast": 1, "MatMul": 1, "Transpose": 1}


@pytest.mark.parametrize(("rank", "expected"), [(None, True), (2, True), (1, False)])
def test_a_weight_is_known_by_its_rank(rank: int | None, expected: bool) -> None:
    model = model_of(TEXT, first=np.ones((4, 3), np.float32), second=np.ones((4, 3), np.float32))
    assert is_weight(model.graph.initializers["first"], rank=rank) is expected
    assert not is_weight(model.graph.inputs[0]) and not is_weight(None)
