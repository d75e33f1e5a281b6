from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from tests.quantize.half.chains import chain
from tests.quantize.tensorrt.engines import World
from trimaran.core.errors import ToolError
from trimaran.quantize.half.fp16 import check_types
from trimaran.quantize.half.half_graph import HALF_TYPES, clip_constants, constants_to_weights, float_values, to_half

FP16 = HALF_TYPES["fp16"]


def test_casts_stand_around_what_is_kept() -> None:
    model = chain(
        helper.make_node("Mul", ["x", "big"], ["grown"], "grow"),
        helper.make_node("Mul", ["grown", "small"], ["y"], "shrink"),
        constants={"big": 1e5, "small": 1e-3},
    )
    to_half(model, FP16, keep={"grown"})
    check_types(model)
    assert [node.op_type for node in model.graph] == ["Mul", "Cast", "Mul", "Cast"]


def test_half_outputs_are_given_when_asked() -> None:
    model = chain(helper.make_node("Relu", ["x"], ["y"]))
    to_half(model, FP16, keep=(), half_outputs=True)
    check_types(model)
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT16


def test_masks_of_the_most_negative_float_become_finite_halves() -> None:
    model = chain(helper.make_node("Add", ["x", "mask"], ["y"]), constants={"mask": np.finfo(np.float32).min})
    assert clip_constants(model, FP16) == ["mask"]
    assert clip_constants(model, FP16) == []
    assert model.graph.initializers["mask"].const_value.numpy() == -FP16.substitute


def test_an_operator_with_its_own_graph_is_refused() -> None:
    branch = helper.make_graph([], "branch", [], [])
    with pytest.raises(ToolError, match="graph of its own"):
        constants_to_weights(chain(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)))


def test_types_are_inferred_without_the_weights(world: World) -> None:
    names = {value.name for value in float_values(ir.load(world.exported("bert").entry_path))}
    assert "embedding" in names and "input_ids" not in names
